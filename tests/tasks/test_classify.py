"""Classes and scores of texts: stored without loss, weighted as said, and what long texts say is averaged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import CPU, sentences, small, vocabulary
from runs import merged, trained
from torch.testing import assert_close

from regard.data.batches import IGNORE
from regard.data.corpus import write_store
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.errors import CheckpointError, ConfigError, InputError
from regard.tasks.classify import Classify, ClassifyConfig, class_weights
from regard.tasks.labels import Labels
from regard.tasks.reading import framed_rows
from regard.train.run import RunDirectory

VOCABULARY = vocabulary()
LABELS = Labels(("neg", "neutral", "pos"), (50, 30, 20))


def task(labels: Labels = LABELS, **settings: object) -> Classify:
    return Classify(ClassifyConfig(**settings), VOCABULARY, labels)  # type: ignore[arg-type]


def store_of(task: Classify, examples: list[tuple[str, str, str]], folder: Path) -> TokenStore:
    return write_store(folder / "store", examples, task, vocabulary=task.limit, fingerprint="")


def pairs(n: int) -> list[tuple[str, str, str]]:
    texts = sentences(2 * n)
    return [(texts[i], texts[n + i] if i % 2 else "", LABELS.names[i % 3]) for i in range(n)]


@pytest.mark.parametrize("score", [0.0, 3.8, -1e-30, 2.5e7, 1 / 3])
def test_a_score_is_stored_to_the_last_bit(score: float, tmp_path: Path) -> None:
    one = task(Labels(()), kind="score")
    store = store_of(one, [("cat", "", str(score)), ("dog", "", "1.5")], tmp_path)
    assert one._wanted(store, np.array([0, 1])).tolist() == [np.float32(score), 1.5]


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_the_loss_is_that_of_every_text_by_itself(pooling: str, tmp_path: Path) -> None:
    """Packed rows, weights of classes and all."""
    one = task(pooling=pooling, class_weights="pos=3")
    examples = pairs(12)
    store, model = store_of(one, examples, tmp_path), small(task(pooling=pooling)).double()
    placement = next(PackedOrder(one.lengths(store), [64], 8, seed=0).one_epoch())
    batch = one.batch(store, placement)
    loss = one.loss(model, batch)
    assert int(loss.n_tokens) == batch.n_tokens == len(placement.items)
    assert int((batch.labels != IGNORE).sum()) == len(placement.items)
    total = nll = torch.zeros((), dtype=torch.float64)
    for item in placement.items.tolist():
        text, second, label = examples[item]
        (_, framed), *_ = one.inputs([(text, second)], 64)
        rows = framed_rows([framed], one.frame.pad)
        vector = one.outputs(model, model(rows), rows, 1)[0, 0]
        each = -vector.log_softmax(-1)[LABELS.number(label)]
        nll, total = nll + each, total + each * (3 if label == "pos" else 1)
    assert_close(loss.nll.double(), nll, rtol=1e-5, atol=1e-6)
    assert_close(loss.total.double(), total, rtol=1e-5, atol=1e-6)


def test_the_loss_of_scores_is_the_squared_distance(tmp_path: Path) -> None:
    one = task(Labels(()), kind="score", pooling="mean")
    examples = [(text, "", str(i / 4)) for i, text in enumerate(sentences(10))]
    store, model = store_of(one, examples, tmp_path), small(task(Labels(()), kind="score", pooling="mean"))
    placement = next(PackedOrder(one.lengths(store), [64], 8, seed=0).one_epoch())
    said = one.probabilities(model, [(text, "") for text, _, _ in examples], CPU)[:, 0]
    wanted = torch.tensor([i / 4 for i in range(10)])
    expected = sum((said[i] - wanted[i]).square() for i in placement.items.tolist())
    assert_close(one.loss(model, one.batch(store, placement)).total, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_pooling_counts_as_it_says(pooling: str) -> None:
    one = task(pooling=pooling)
    model = small(one)
    rows = framed_rows([one.frame.around(VOCABULARY.encode(text)) for text in sentences(4)], one.frame.pad)
    hidden, pooler = model(rows), model.heads["pooler"].pooling
    found = pooler(hidden, rows, 3)
    for row in range(4):
        own = hidden[row][rows.segment[row] == 1]
        if pooling == "cls":
            expected = own[0]
        elif pooling == "mean":
            expected = own.mean(0)
        else:
            weights = (own @ pooler.attention.query[0] / math.sqrt(16)).softmax(0)
            expected = weights @ own
        assert_close(found[row, 0], expected)
        assert_close(found[row, 1:], torch.zeros(2, 16))


def test_a_long_text_is_read_in_windows_and_their_say_is_averaged_by_tokens() -> None:
    one = task(length=64)
    model = small(one, n_positions=32)
    text, short = " ".join(sentences(12)), "the cat sits"
    found = one.probabilities(model, [(text, ""), (short, "")], CPU)
    windows = [framed for number, framed in one.inputs([(text, "")], 32)]
    assert len(windows) > 2
    assert max(len(each.ids) for each in windows) <= 32
    covered = {index for each in windows for index in each.ids}
    assert covered >= set(VOCABULARY.encode(text))
    said = torch.stack([one._said(model, [each], CPU)[0] for each in windows])
    lengths = torch.tensor([float(len(each.ids)) for each in windows])
    assert_close(found[0], (said * lengths[:, None]).sum(0) / lengths.sum(), rtol=1e-4, atol=1e-5)
    assert_close(found[1], one.probabilities(model, [(short, "")], CPU)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("first", "second"), [(3, 90), (90, 3), (80, 70), (20, 20), (100, 1)])
def test_every_token_of_a_long_pair_is_in_a_window(first: int, second: int) -> None:
    one = task()
    texts = " ".join(["cat"] * first), " ".join(["dog"] * second)
    found = [framed for _, framed in one.inputs([texts], 32)]
    assert max(len(each.ids) for each in found) <= 32
    cat, dog = (VOCABULARY.encode(word)[0] for word in ("cat", "dog"))
    for each in found:
        assert each.ids.count(cat) >= min(first, 13)
        assert each.ids.count(dog) >= min(second, 13)


class TestLabels:
    def test_in_order_with_their_counts(self, tmp_path: Path) -> None:
        labels = Labels.of(["b", "10", "9", "a", "b"])
        assert (labels.names, labels.counts) == (("9", "10", "a", "b"), (1, 1, 1, 2))
        labels.save(tmp_path)
        assert Labels.load(tmp_path) == labels

    def test_an_unknown_one(self) -> None:
        with pytest.raises(InputError, match="the label 'great' was not there in training; known: neg, neutral, pos"):
            LABELS.number("great")

    @pytest.mark.parametrize("text", ["{", "[]", '{"labels": 3}', '{"labels": [1]}', "{}"])
    def test_damaged(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "labels.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"labels.json: damaged; restore it from a copy"):
            Labels.load(tmp_path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"labels.json: no such file; restore it from a copy"):
            Labels.load(tmp_path)


class TestWeights:
    def test_balanced_classes_weigh_the_same(self) -> None:
        weights = class_weights("balanced", LABELS)
        assert_close(weights * torch.tensor([50.0, 30.0, 20.0]), torch.full((3,), 100 / 3))

    @pytest.mark.parametrize("asked", ["great=2", "pos=0", "pos=-1", "pos=x", "pos", "balansed"])
    def test_bad_ones(self, asked: str) -> None:
        with pytest.raises(
            ConfigError, match=r"accepted: equal, balanced, or LABEL=WEIGHT,\.\.\. for neg, neutral, pos"
        ):
            class_weights(asked, LABELS)


TRAINING = {
    "task": {"name": "classify"},
    "tokenizer": {"vocabulary": 48},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 80, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 10, "validate_every": 40},
}


def written(folder: Path, rows: list[tuple[str, ...]], header: str) -> Path:
    path = folder / "data.tsv"
    path.write_text(header + "\n" + "".join("\t".join(row) + "\n" for row in rows))
    return path


def labelled(kind: str, n: int = 120) -> list[tuple[str, ...]]:
    """One text: does it name a cat? Two: is the first word the same? A score: how many red ones?"""
    texts = sentences(2 * n)
    if kind == "one":
        return [(text, "yes" if "cat" in text.split() else "no") for text in texts[:n]]
    if kind == "two":
        return [(a, b, str(a.split()[0] == b.split()[0])) for a, b in zip(texts[:n], texts[n:], strict=True)]
    return [(text, str(text.split().count("red"))) for text in texts[:n]]


@pytest.mark.parametrize(
    ("kind", "changes", "metric", "least"),
    [
        ("one", {}, "accuracy", 0.9),
        ("one", {"task": {"pooling": "attention", "class_weights": "balanced"}}, "accuracy", 0.9),
        ("score", {"task": {"kind": "score", "pooling": "mean"}}, "pearson", 0.9),
    ],
)
def test_it_learns(kind: str, changes: dict[str, object], metric: str, least: float, tmp_path: Path) -> None:
    header = "text\tscore" if kind == "score" else "text\tlabel"
    file = str(written(tmp_path, labelled(kind), header))
    recipe = merged(TRAINING, {"data": {"train": [file], "valid": [file]}}, changes)  # type: ignore[arg-type]
    trained(recipe, tmp_path / "run")
    best = json.loads((tmp_path / "run" / "metrics.json").read_text())["best"]
    _, found, model = RunDirectory(tmp_path / "run").load()
    assert isinstance(found, Classify)
    scores = found.evaluate(model, [file], (), False, CPU)  # type: ignore[arg-type]
    assert scores[metric] > least
    assert scores["n"] == 120
    assert best[found.goal.metric] == pytest.approx(scores[found.goal.metric], abs=1e-6)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([("cat", "a")] * 30, {}, "only one label, 'a': nothing to tell apart; is it the right column?"),
        (
            [(f"cat {i}", str(i)) for i in range(130)],
            {},
            "different numbers as labels; for a scale pass --set task.kind",
        ),
        ([("cat", "a"), ("dog", "b")] * 20, {"kind": "score"}, "but the label 'a' is no number; leave the kind out"),
        ([("cat", "a"), ("dog", "b")] * 20, {"class_weights": "c=1"}, "task.class_weights: 'c=1'; accepted: equal"),
    ],
)
def test_labels_that_cannot_be_learned(
    rows: list[tuple[str, ...]], settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = str(written(tmp_path, rows, "text\tlabel"))
    with pytest.raises(ConfigError, match=message):
        trained(merged(TRAINING, {"data": {"train": [file], "valid": [file]}, "task": settings}), tmp_path / "run")
