"""Translators of several directions: told apart by the token, resumed exactly, scored, looked into, distilled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import TINY, contents, digits, merged, ready, trained

import regard
from regard import config
from regard.cli import main
from regard.errors import ConfigError, DataError, InputError, RegardError
from regard.export import export_model
from regard.export.ctranslate2_engine import open_engine
from regard.generate import DecodingConfig
from regard.tasks.shared.pair_layout import DirectedLayout
from regard.training.loop import Trainer

NAMES = dict(zip("0123456789", "abcdefghij", strict=True))
"""The words of the language "aa"; in "zz" the words of "dd" come in reverse."""

TO_LEARN: config.Tables = {
    "task": {"label_smoothing": 0.0},
    "tokenizer": {"vocabulary": 275},
    "model": {"d_model": 32, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 130, "batch_tokens": 512, "learning_rate": 1e-2, "validate_every": 65, "log_every": 65},
}


def write_table(path: Path, rows: list[tuple[str, ...]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def three_languages(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Return digits, the same in reverse, and the same in letters."""
    return [(d, z, "".join(NAMES.get(c, c) for c in d)) for d, z in digits(n, seed=seed, least=3, most=4)]


def tables(folder: Path, *changes: config.Tables, n_rows: int = 12) -> config.Tables:
    """Return a recipe with a triple file in all directions and a pair file in one, validated on the triples."""
    rows = three_languages(n_rows)
    triples = write_table(folder / "triples.tsv", rows) + ":dd=1,zz=2,aa=3"
    pairs = write_table(folder / "pairs.tsv", [row[:2] for row in rows[:4]]) + ":dd=1>zz=2"
    data: config.Table = {"train": (triples, pairs), "valid": (triples,), "temperature": 3.0}
    return merged(TINY, {"tokenizer": {"vocabulary": 270}, "data": data}, *changes)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    trained(tables(folder, TO_LEARN, n_rows=8), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def model(learned: Path) -> regard.Translator:
    return regard.Translator.load(learned, device="cpu")


def test_the_token_tells_directions_apart(model: regard.Translator) -> None:
    assert set(model.directions) == {"dd-zz", "zz-dd", "dd-aa", "aa-dd", "zz-aa", "aa-zz"}
    rows = three_languages(8)
    for source in range(3):
        for target, language in enumerate(("dd", "zz", "aa")):
            if source != target:
                best = model.translate([row[source] for row in rows], to=language)
                right = sum(each[0].text == row[target] for each, row in zip(best, rows, strict=True))
                assert right >= 7, (source, language, right)


def test_language_token_is_no_word_of_the_source(model: regard.Translator) -> None:
    text, _, letters = three_languages(8)[0]
    best = model.translate(text, to="aa", attention=True)[0]
    assert best.source_tokens[0] == ">>aa<<"
    assert best.attention is not None
    assert best.attention.shape[-1] == len(best.source_tokens)
    assert max(source for source, _ in best.alignment) < len(text.split())
    assert model.look(text, to="aa").tokens["encoder"][0] == ">>aa<<"
    score = model.force_decode(text, letters, to="aa").hypothesis.score
    assert score > model.force_decode(text, letters, to="zz").hypothesis.score


def test_wrong_languages_are_one_line(learned: Path, model: regard.Translator) -> None:
    def error(**options: str) -> str:
        with pytest.raises(InputError) as caught:
            model.translate("1 2", **options)  # type: ignore[call-overload]
        return str(caught.value)

    assert error().startswith("into which language? name it with --to; this model translates dd-zz, dd-aa, zz-dd")
    assert error(to="ab").startswith("--to ab: this model translates dd-zz, ")
    path = write_table(learned / "x.tsv", [("a", "b")])
    with pytest.raises(DataError, match="has de-en, en-de; asked for: "):
        model.evaluate(path + ":de=1,en=2")
    with pytest.raises(InputError, match="no direction dd-dd; this model translates"):
        model.evaluate(str(learned / "x.tsv"), source_lang="dd", target_lang="dd")
    with pytest.raises(InputError, match=r"which direction\? this model translates .*; give --source-lang and"):
        model.evaluate(str(learned / "x.tsv"))


def test_commands(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit, match=r"^0$"):
            main([*arguments])
        return capsys.readouterr().out.strip()

    (text, reverse, _), triples = three_languages(8)[1], str(learned.parent / "triples.tsv")
    assert run("translate", str(learned), text, "--to", "zz") == reverse
    direction = ["--source-lang", "dd", "--target-lang", "aa"]
    one = json.loads(run("evaluate", str(learned), f"{triples}:1,3", "--json", *direction))
    every = json.loads(run("evaluate", str(learned), f"{triples}:dd=1,zz=2,aa=3", "--json"))
    assert (one["n"], every["n"]) == (8, 48)
    assert every["exact"] > 0.85
    assert len([key for key in every if key.startswith("bleu_") and "-" in key]) == 6
    assert len(json.loads(run("info", str(learned), "--json"))["directions"]) == 6


def test_exports_take_the_token(learned: Path, tmp_path: Path, model: regard.Translator) -> None:
    """CTranslate2 translates into the same language; transformers finds the token at the beginning of a text."""
    pytest.importorskip("ctranslate2")
    transformers = pytest.importorskip("transformers")
    rows = three_languages(8)
    with open_engine(learned, torch.device("cpu")) as engine:
        translated = engine.translate_batches([[row[0] for row in rows]], DecodingConfig(), with_scores=False, to="aa")
        theirs = [best[0].text for _, best in translated]
    assert theirs == [best[0].text for best in model.translate([row[0] for row in rows], to="aa")]
    export_model(learned, tmp_path / "hf", "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ids = tokenizer(">>aa<< " + rows[0][0])["input_ids"]
    assert ids[:-1] == model.predictor.encode_sources([rows[0][0]], "aa")[0]


def test_texts_are_stored_once(tmp_path: Path) -> None:
    prepared = ready(tables(tmp_path), tmp_path / "run")
    task, store = prepared.task, prepared.train_store
    assert len(store) == 12 + 4
    assert len(task.example_lengths(store)) == 12 * 6 + 4
    layout = task.layout  # type: ignore[attr-defined]
    assert isinstance(layout, DirectedLayout)
    pairs = [layout.pair(store, item) for item in range(12 * 6 + 4)]
    rows, decode = three_languages(12), layout.tokenizers.target.decode
    texts = sorted((each.direction, decode(each.source), decode(each.target)) for each in pairs)
    columns = {"dd": 0, "zz": 1, "aa": 2}
    expected = [(f"{s}-{t}", r[columns[s]], r[columns[t]]) for r in rows for s in columns for t in columns if s != t]
    assert texts == sorted(expected + [("dd-zz", *row[:2]) for row in rows[:4]])


def test_batches_hold_the_pairs_behind_their_tokens(tmp_path: Path) -> None:
    prepared = ready(tables(tmp_path), tmp_path / "run")
    task: Any = prepared.task
    placement = next(prepared.train_order.iterate_epoch())
    batch = task.make_batch(prepared.train_store, placement)
    ids, segment = batch.source.ids.numpy(), batch.source.segment.numpy()
    for item, row, number in zip(placement.items, placement.rows, _segments(placement.rows), strict=True):
        pair = task.layout.pair(prepared.train_store, int(item))
        assert ids[row][segment[row] == number].tolist() == [*pair.source, task.special_tokens.eos_id]
        is_here = batch.target_in.segment.numpy()[row] == number
        assert batch.target_out.numpy()[row][is_here].tolist() == [*pair.target, task.special_tokens.eos_id]
        target = pair.direction.partition("-")[2]
        assert task.tokenizers.source.display_tokens(pair.source[:1]) == [f">>{target}<<"]


def _segments(rows: np.ndarray) -> Iterator[int]:
    seen: dict[int, int] = {}
    for row in rows.tolist():
        seen[row] = seen.get(row, 0) + 1
        yield seen[row]


def test_resuming_is_exact_with_temperature(tmp_path: Path) -> None:
    recipe = tables(tmp_path)
    events = trained(recipe, tmp_path / "whole")
    valid = next(event.values for event in events if event.kind == "valid")
    assert {"bleu", "bleu_dd-zz", "bleu_aa-zz"} <= valid.keys()
    stopped = Trainer(ready(recipe, tmp_path / "parts"))
    for event in stopped.train():
        if event.step == 4:
            stopped.request_stop()
    assert Trainer(ready(recipe, tmp_path / "parts", resume=True)).progress.step == 4
    trained(recipe, tmp_path / "parts", resume=True)
    whole, parts = contents(tmp_path / "whole"), contents(tmp_path / "parts")
    assert whole == parts


def test_recipes_that_cannot_be(tmp_path: Path, learned: Path) -> None:
    def refused(*changes: config.Tables) -> str:
        with pytest.raises(RegardError) as caught:
            ready(tables(tmp_path, *changes), tmp_path / "run")
        return str(caught.value)

    plain = write_table(tmp_path / "plain.tsv", [("1", "2")])
    assert "of which languages? name them, as in" in refused({"data": {"train": (plain, f"{plain}:dd=1,zz=2")}})
    assert "tokenizer.joint = false" in refused({"tokenizer": {"joint": False}})
    assert "but the data has" in refused({"task": {"directions": ["dd-en"]}})
    assert "is no direction" in refused({"task": {"directions": ["dden"]}})
    assert "one language alone" in refused({"data": {"train": (f"{plain}:dd=1",)}})
    new = {"data": {"train": (f"{plain}:dd=1,xx=2",), "valid": ()}, "model": {"start": str(learned)}}
    with pytest.raises(ConfigError, match="no token >>xx<<"):
        ready({"task": {"name": "translate"}, **new}, tmp_path / "run")


def test_student_of_a_teacher_of_several_directions(learned: Path, tmp_path: Path) -> None:
    """Every text is translated in all directions from its language; pairs in those of the pair."""
    rows = three_languages(8)
    text = write_table(tmp_path / "text.dd", [row[:1] for row in rows]) + ":dd"
    student = {"model": {**TINY["model"]}, "train": {**TINY["train"], "steps": 3}, "data": {"max_length": 32}}
    options: dict[str, Any] = {"recipe": student, "valid": [f"{learned.parent / 'triples.tsv'}:dd=1,zz=2,aa=3"]}
    run = regard.distill(learned, [text], out=tmp_path / "a", beam=1, batch=4, **options)
    list(islice(run, 1))
    texts = {path.name: path.read_text().count("\n") for path in (tmp_path / "a/distilled").glob("train*")}
    assert texts == {"train.dd-zz.jsonl": 8, "train.dd-aa.jsonl": 8}
    assert set(run.prepared.config.task.directions) == {"dd-zz", "dd-aa"}
    triples = f"{learned.parent / 'triples.tsv'}:dd=1,zz=2,aa=3"
    run = regard.distill(learned, [triples], out=tmp_path / "b", pairs=True, beam=1, batch=8, **options)
    assert set(run.prepared.config.task.directions) == set(regard.Translator.load(learned).directions)
    assert regard.Translator.load(run.path).translate(rows[0][0], to="aa")[0].tokens
    with pytest.raises(DataError, match=r"of which language\? this teacher translates several"):
        regard.distill(learned, [str(tmp_path / "text.dd")], out=tmp_path / "c", **options)
