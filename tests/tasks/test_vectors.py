"""Skip-gram word vectors: they learn which words keep the same company, resume exactly, and are used."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import contents, merged, ready

import regard
from regard import config
from regard.cli import main
from regard.data.word_vectors import read_word_vectors
from regard.errors import ConfigError, InputError
from regard.training.loop import Trainer
from regard.training.recipe_completion import build_provisional_config, parse_recipe

GROUPS = {
    "fruit": ["apple", "pear", "plum", "cherry"],
    "colour": ["red", "green", "blue", "yellow"],
    "animal": ["cat", "dog", "horse", "cow"],
}
COMPANY = {"fruit": ["eat", "ripe", "tree"], "colour": ["paint", "bright", "wall"], "animal": ["feed", "farm", "tail"]}
"""Words of a group never stand together, but with the same words."""


def write_text(folder: Path, n_lines: int = 900) -> str:
    generator = random.Random(0)
    path = folder / "text.txt"
    lines = []
    for _ in range(n_lines):
        name = generator.choice(list(GROUPS))
        words = [generator.choice(GROUPS[name]), *generator.sample(COMPANY[name], 2)]
        generator.shuffle(words)
        lines.append(" ".join(words))
    path.write_text("\n\n".join(lines) + "\n")
    return str(path)


def recipe(folder: Path, **train: int) -> config.Tables:
    return {
        "task": {"name": "vectors", "window": 2, "subsample": 0.0},
        "data": {"train": [write_text(folder)]},
        "model": {"d_model": 16},
        "train": {"steps": 60, "batch_tokens": 1024, "learning_rate": 0.2, "validate_every": 30, **train},
    }


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sparse_gradients_are_neither_compiled_nor_rounded_by_default(tmp_path: Path, device: str) -> None:
    chosen = torch.device(device)
    train = build_provisional_config(parse_recipe(recipe(tmp_path), chosen, "test"), chosen).train
    assert (train.precision, train.compiled) == ("float32", False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    list(Trainer(ready(recipe(folder), folder / "run")).train())
    return folder / "run"


def test_words_in_the_same_company_are_near(run: Path) -> None:
    """Every word of a group has the others of its group as its nearest of all groups' words."""
    vectors = regard.WordVectors.load(run)
    everywhere = [word for words in GROUPS.values() for word in words]
    for words in GROUPS.values():
        for word in words:
            ranked = [hit.word for hit in vectors.nearest(word, len(vectors.words)) if hit.word in everywhere]
            assert set(ranked[:3]) == set(words) - {word}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["best"]["valid_loss"] < 6 * np.log(2) - 0.8  # untrained: log 2 for each of 1 + 5 pairs


def test_killed_and_resumed_equals_never_killed(tmp_path: Path) -> None:
    tables = recipe(tmp_path, steps=8, validate_every=4, save_every=2)
    list(Trainer(ready(tables, tmp_path / "whole")).train())
    trainer = Trainer(ready(tables, tmp_path / "parts"))
    for event in trainer.train():
        if event.kind == "save" and event.step >= 4:
            break  # nothing after this checkpoint is saved, as after kill -9
    list(Trainer(ready(tables, tmp_path / "parts", resume=True)).train())
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_embed_match_and_analogy(run: Path) -> None:
    vectors = regard.WordVectors.load(run)
    one, other = vectors.embed(["apple", "pear"])
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert vectors.match("apple", "pear") == pytest.approx(float(cosine), abs=1e-6)
    assert vectors.embed("Apple").tolist() == one.tolist()
    units = {word: vectors.embed(word) / np.linalg.norm(vectors.embed(word)) for word in vectors.words}
    target = units["pear"] - units["apple"] + units["red"]
    scores = {word: unit @ target / np.linalg.norm(target) for word, unit in units.items()}
    best = max(scores.keys() - {"apple", "pear", "red"}, key=lambda word: scores[word])
    hit = vectors.analogy("apple", "pear", "red")[0]
    assert hit.word == best
    assert hit.score == pytest.approx(float(scores[best]), abs=1e-5)
    with pytest.raises(InputError, match="'aple' has no vector here; did you mean 'apple'"):
        vectors.nearest("aple")


def test_at_least_one_nearest_word(run: Path) -> None:
    with pytest.raises(InputError, match=r"^top -1: expected at least 1 and at most 1,000,000,000$"):
        regard.WordVectors.load(run).nearest("apple", top=-1)


def test_info_names_the_training(run: Path) -> None:
    about = regard.load(run).info()
    assert about["task"] == "vectors"
    assert about["width"] == 16
    assert about["training"]["curve"]["metric"] == "valid_loss"


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_exported_vectors_are_the_same(
    run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("export", run, "--to", "word2vec", "--out", tmp_path / name) == 0
    vectors, table = regard.WordVectors.load(run), read_word_vectors(tmp_path / name)
    assert list(table.words) == list(vectors.words)
    np.testing.assert_array_equal(table.vectors, vectors.vectors)
    capsys.readouterr()
    assert command("match", tmp_path / name, "pear - apple + red", "--top", 2, "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["word"] for each in printed] == [hit.word for hit in vectors.analogy("apple", "pear", "red", 2)]


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return int(ended.value.code or 0)


def test_match_of_two_words(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("match", run, "apple", "pear") == 0
    assert float(capsys.readouterr().out) == pytest.approx(
        regard.WordVectors.load(run).match("apple", "pear"), abs=1e-4
    )


REFUSED: dict[str, Callable[[Path], tuple[list[object], str]]] = {
    "an unknown word": lambda run: (["match", run, "zebra"], "'zebra' has no vector here"),
    "evaluate": lambda run: (["evaluate", run, run / "log.jsonl"], "word vectors, without a network"),
    "look": lambda run: (["look", run, "apple"], "word vectors, without a network"),
    "classify": lambda run: (["classify", run, "apple"], "a model for vectors, which cannot classify"),
    "hf": lambda run: (["export", run, "--to", "hf", "--out", run / "hf"], "word vectors; pass --to word2vec"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_vectors_cannot_do_is_refused(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = REFUSED[name](run)
    assert command(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        ("task", "window", 0, "task.window = 0; expected at least 1 and at most 64"),
        ("task", "subsample", 2.0, "task.subsample = 2.0"),
        ("tokenizer", "kind", "bpe", 'tokenizer.kind = "bpe"; vectors are of "words"'),
        ("train", "precision", "bfloat16", "train.precision = bfloat16; word vectors take float32 only"),
        ("train", "freeze", "embeddings", "train.freeze = embeddings; word vectors take none only"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, table: str, key: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ready(merged(recipe(tmp_path), {table: {key: value}}), tmp_path / "run")
