"""Regression per word: scores in the label column, standardised in training, as numbers again for users."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import transformers
from encoders import WORDS, sentences, small, vocabulary
from tiny_runs import merged, trained
from torch.testing import assert_close

import regard
from regard.cli import main
from regard.data.corpus import write_store
from regard.data.labels import Labels, ScoreScaler
from regard.data.order import PackedOrder
from regard.errors import ConfigError, DataError
from regard.export import export_model
from regard.metrics import mse, pearson, regression_metrics, spearman
from regard.predict.encoder_inference import inputs_to_rows
from regard.predict.tagging import encode_word_windows
from regard.tasks.tag import TagConfig, TaggingTask

VOCABULARY = vocabulary(size=60)  # so small that some words have several pieces
SCORES = {word: 10 * number - 45.5 for number, word in enumerate(WORDS)}
SCALE = ScoreScaler(3.0, 20.0)


def task(scale: ScoreScaler = SCALE) -> TaggingTask:
    return TaggingTask(TagConfig(kind="score"), VOCABULARY, Labels(scale=scale))


def scored(folder: Path, n: int = 60, name: str = "data.conll") -> Path:
    """Write sentences in which every word has its score; of some it is not known."""
    rng = Random(0)
    lines = [
        "\n".join(f"{word}\t{'_' if rng.random() < 0.2 else SCORES[word]}" for word in text.split())
        for text in sentences(n)
    ]
    (folder / name).write_text("\n\n".join(lines) + "\n")
    return folder / name


RECIPE = {
    "task": {"name": "tag", "kind": "score"},
    "tokenizer": {"vocabulary": 60},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 150, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 10, "validate_every": 75},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    file = str(scored(folder))
    trained(merged(RECIPE, {"data": {"train": [file], "valid": [file]}}), folder / "run")
    return folder / "run"


def test_score_is_that_of_the_first_subword_and_is_standardised(tmp_path: Path) -> None:
    one, words, labels = task(), "plane\nlands\nin\ntokyo", "1.5\n_\n-3\n23"
    _, _, (stored,) = one.encode([(words, labels)])
    word_ids = VOCABULARY.encode_words(words.split("\n"))
    assert max(map(len, word_ids)) > 1
    expected = [math.nan]
    for ids, score in zip(word_ids, (1.5, math.nan, -3.0, 23.0), strict=True):
        expected += [score, *[math.nan] * (len(ids) - 1)]
    np.testing.assert_array_equal(stored, [*expected, math.nan])
    store = write_store(tmp_path / "s", [(words, labels)] * 3, one, fingerprint="")
    batch = one.make_batch(store, next(PackedOrder(one.example_lengths(store), [64], 2, seed=0).iterate_epoch()))
    found = batch.labels[~batch.labels.isnan()].tolist()
    assert sorted(found) == pytest.approx(sorted([-0.075, -0.3, 1.0] * 3))
    assert batch.n_tokens == 9


def test_loss_is_the_squared_error_at_scored_words(tmp_path: Path) -> None:
    one = task()
    examples = [("cat\nsits\non", "4\n_\n-1"), ("the\nmat", "2\n8")]
    store = write_store(tmp_path / "s", examples, one, fingerprint="")
    batch = one.make_batch(store, next(PackedOrder(one.example_lengths(store), [64], 1, seed=0).iterate_epoch()))
    model = small(one)
    loss, total = one.compute_loss(model, batch), 0.0
    for words, labels in examples:
        ((_, window),) = encode_word_windows(VOCABULARY, one.template, [words.split("\n")], 64)
        with torch.no_grad():
            outputs = model.heads["tags"](model(inputs_to_rows([window.encoded], one.template.pad_id)))[0, :, 0]
        for word, position in window.word_positions:
            label = labels.split("\n")[word]
            total += 0.0 if label == "_" else (float(outputs[position]) - (float(label) - 3.0) / 20.0) ** 2
    assert float(loss.nll) == pytest.approx(total, rel=1e-5)
    assert int(loss.n_tokens) == 4


def test_metrics_by_hand() -> None:
    gold, predicted = [1.0, 2.0, 4.0], [1.0, 3.0, 2.0]
    assert mse(gold, predicted) == pytest.approx(5 / 3)
    assert math.isnan(mse([], []))
    expected = {"pearson": pearson(gold, predicted), "spearman": spearman(gold, predicted), "mse": 5 / 3}
    assert regression_metrics(gold, predicted) == pytest.approx(expected)


def test_it_learns_and_says_numbers(run: Path) -> None:
    model = regard.Tagger.load(run, device="cpu")
    assert "scores" in repr(model)
    scores = model.evaluate(str(run.parent / "data.conll"))
    assert scores["pearson"] > 0.98
    assert scores["spearman"] > 0.98
    assert scores["mse"] < 0.05 * np.var(list(SCORES.values()))
    labels = [line.split("\t")[1] for line in (run.parent / "data.conll").read_text().splitlines() if line]
    assert scores["words"] == sum(label != "_" for label in labels) < len(labels)
    for each in model.tag(sentences(1)[0]):
        assert each.score == pytest.approx(SCORES[each.word], abs=15)
        assert (each.label, math.isnan(each.probability)) == ("", True)
    logged = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert {"pearson", "spearman", "mse", "valid_loss"} < set(logged[-1])
    best = model.info()["training"]["best"]
    assert best["spearman"] == pytest.approx(scores["spearman"], abs=1e-6)


def test_look_explains_the_number_of_each_word(run: Path) -> None:
    model = regard.Tagger.load(run, device="cpu")
    seen = model.look("red cat")
    scores = [each.score for each in model.tag("red cat")]
    assert seen.look_target.is_regression
    with torch.no_grad():
        assert seen.look_target.explained_outputs().tolist() == pytest.approx(scores, rel=1e-4)
    assert seen.look_target.output_labels == tuple(f"{w}/{s:.3g}" for w, s in zip(("red", "cat"), scores, strict=True))
    data = seen.view_data("summary")
    assert data.notes["summary"][0] == f"predicted: {seen.about['prediction']} (mean score {sum(scores) / 2:.3g})"
    assert "lowers its score by" in data.notes["summary"][1]
    gradients = seen.gradients()
    assert_close(gradients.convergence_delta / np.ptp(list(SCORES.values())), torch.zeros(2), atol=0.02, rtol=0)


def test_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = [each.score for each in regard.Tagger.load(run, device="cpu").tag("red cat")]
    for arguments in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["tag", str(run), "red cat", "--device", "cpu", *arguments])
        assert not ended.value.code
    plain, line = capsys.readouterr().out.splitlines()
    assert plain == f"red/{scores[0]:.4f} cat/{scores[1]:.4f}"
    found = json.loads(line)
    assert found.keys() == {"text", "words", "scores", "offsets"}
    assert found["scores"] == pytest.approx(scores)


def test_exported_model_predicts_the_same_numbers(run: Path, tmp_path: Path) -> None:
    export_model(run, tmp_path / "hf", "hf")
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ours = [each.score for each in regard.Tagger.load(run, device="cpu").tag("the cat sits on the mat")]
    words = tokenizer(["the", "cat", "sits", "on", "the", "mat"], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        outputs = theirs(**words).logits[0, :, 0].tolist()
    firsts = [words.word_ids().index(number) for number in range(6)]
    assert [outputs[first] for first in firsts] == pytest.approx(ours, abs=1e-3)
    again = regard.Tagger.load(tmp_path / "hf", device="cpu")
    assert again.task.is_regression
    assert [each.score for each in again.tag("the cat sits on the mat")] == pytest.approx(ours, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "cat\t1\ndog\tfast\n",
            "data.conll:2: the label 'fast' is not a finite number, but task.kind is score; correct it,",
        ),
        ("cat\t1\ndog\tnan\n", "data.conll:2: the label 'nan' is not a finite number"),
        ("cat\t_\ndog\t_\n", "no word has a score, every label is _; is it the right column?"),
        ("cat\t2\ndog\t2\n", "every score is 2: nothing to tell apart; is it the right column?"),
    ],
)
def test_refusals(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "data.conll").write_text(content)
    tables = merged(RECIPE, {"data": {"train": [str(tmp_path / "data.conll")]}})
    with pytest.raises((ConfigError, DataError)) as error:
        trained(tables, tmp_path / "run")
    assert message in str(error.value)


def test_many_numbers_as_classes_are_refused(tmp_path: Path) -> None:
    lines = "\n\n".join(
        "\n".join(f"{word}\t{number / 7 + index}" for index, word in enumerate(WORDS)) for number in range(20)
    )
    (tmp_path / "data.conll").write_text(lines + "\n")
    tables = merged(RECIPE, {"task": {"kind": "classes"}, "data": {"train": [str(tmp_path / "data.conll")]}})
    with pytest.raises(ConfigError, match=r"different numbers as labels; for a scale pass --set task\.kind=score"):
        trained(tables, tmp_path / "run")
