"""Classes and scores of texts: stored without loss, weighted as said, learned and scored."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from encoders import CPU, DISTINCT, sentences, small, vocabulary
from saved_runs import kept
from tiny_runs import merged, ready, trained
from torch.testing import assert_close

from regard.data.corpus import Corpus, write_store
from regard.data.labels import Labels, ScoreScaler
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.errors import ConfigError, DataError
from regard.export import export_model
from regard.nn import IGNORE
from regard.predict.classification import compute_text_logits, encode_text_windows
from regard.predict.encoder_inference import inputs_to_rows
from regard.runs.model_loading import open_model
from regard.runs.run_directory import RunDirectory
from regard.tasks import classify
from regard.tasks.classify import ClassificationTask, ClassifyConfig, LabelledReader
from regard.tasks.shared.label_collection import compute_class_weights

VOCABULARY = vocabulary()
LABELS = Labels(("neg", "neutral", "pos"), (50, 30, 20))


def task(labels: Labels = LABELS, **settings: object) -> ClassificationTask:
    return ClassificationTask(ClassifyConfig(**settings), VOCABULARY, labels)  # type: ignore[arg-type]


def store_of(task: ClassificationTask, examples: list[tuple[str, str, str]], folder: Path) -> TokenStore:
    return write_store(folder / "store", examples, task, fingerprint="")


def pairs(n: int) -> list[tuple[str, str, str]]:
    texts = sentences(2 * n)
    return [(texts[i], texts[n + i] if i % 2 else "", LABELS.names[i % 3]) for i in range(n)]


@pytest.mark.parametrize("score", [0.0, 3.8, -1e-30, 2.5e7, 1 / 3])
def test_score_is_stored_as_float32(score: float, tmp_path: Path) -> None:
    one = task(Labels(()), kind="score")
    store = store_of(one, [("cat", "", str(score)), ("dog", "", "1.5")], tmp_path)
    assert store.values("label").tolist() == [np.float32(score), 1.5]


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_the_loss_is_that_of_every_text_by_itself(pooling: str, tmp_path: Path) -> None:
    """Packed rows, weights of classes and all."""
    one = task(pooling=pooling, class_weights="pos=3")
    examples = pairs(12)
    store, model = store_of(one, examples, tmp_path), small(task(pooling=pooling)).double()
    placement = next(PackedOrder(one.example_lengths(store), [64], 8, seed=0).iterate_epoch())
    batch = one.make_batch(store, placement)
    loss = one.compute_loss(model, batch)
    assert int(loss.n_tokens) == batch.n_tokens == len(placement.items)
    assert int((batch.labels != IGNORE).sum()) == len(placement.items)
    total = nll = torch.zeros((), dtype=torch.float64)
    for item in placement.items.tolist():
        text, second, label = examples[item]
        (_, framed), *_ = encode_text_windows(one.tokenizer, one.template, [(text, second)], 64)
        rows = inputs_to_rows([framed], one.template.pad_id)
        vector = compute_text_logits(model, model(rows), rows, 1)[0, 0]
        each = -vector.log_softmax(-1)[LABELS.index(label)]
        nll, total = nll + each, total + each * (3 if label == "pos" else 1)
    assert_close(loss.nll.double(), nll, rtol=1e-5, atol=1e-6)
    assert_close(loss.total.double(), total, rtol=1e-5, atol=1e-6)


def test_the_loss_of_scores_is_the_squared_distance(tmp_path: Path) -> None:
    one = task(Labels(()), kind="score", pooling="mean")
    examples = [(text, "", str(i / 4)) for i, text in enumerate(sentences(10))]
    store, model = store_of(one, examples, tmp_path), small(task(Labels(()), kind="score", pooling="mean"))
    placement = next(PackedOrder(one.example_lengths(store), [64], 8, seed=0).iterate_epoch())
    predicted = one.make_predictor(model, CPU).predict([(text, "") for text, _, _ in examples])[:, 0]
    wanted = torch.tensor([i / 4 for i in range(10)])
    expected = sum((predicted[i] - wanted[i]).square() for i in placement.items.tolist())
    assert_close(one.compute_loss(model, one.make_batch(store, placement)).total, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_pooling_counts_as_it_says(pooling: str) -> None:
    one = task(pooling=pooling)
    model = small(one)
    rows = inputs_to_rows([one.template.wrap(VOCABULARY.encode(text)) for text in sentences(4)], one.template.pad_id)
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


class TestWeights:
    def test_balanced_classes_weigh_the_same(self) -> None:
        weights = compute_class_weights("balanced", LABELS)
        assert_close(weights * torch.tensor([50.0, 30.0, 20.0]), torch.full((3,), 100 / 3))

    def test_they_are_read_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = task(class_weights="pos=3")
        store, model = store_of(one, pairs(12), tmp_path), small(one)
        batch = one.make_batch(store, next(PackedOrder(one.example_lengths(store), [64], 8, seed=0).iterate_epoch()))
        before = one.compute_loss(model, batch).total
        monkeypatch.setattr(classify, "compute_class_weights", None)
        assert_close(one.compute_loss(model, batch).total, before)

    @pytest.mark.parametrize("scheme", ["great=2", "pos=0", "pos=-1", "pos=x", "pos", "balansed"])
    def test_bad_ones(self, scheme: str) -> None:
        with pytest.raises(
            ConfigError, match=r"accepted: equal, balanced, or LABEL=WEIGHT,\.\.\. for neg, neutral, pos"
        ):
            compute_class_weights(scheme, LABELS)


TRAINING = {
    "task": {"name": "classify"},
    "tokenizer": {"vocabulary": 48},
    "model": {"preset": "tiny", "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {"steps": 80, "batch_tokens": 512, "learning_rate": 1e-2, "warmup": 10, "validate_every": 40},
}


def written(folder: Path, rows: list[tuple[str, ...]], header: str, name: str = "data.tsv") -> Path:
    path = folder / name
    path.write_text(header + "\n" + "".join("\t".join(row) + "\n" for row in rows))
    return path


def labelled(kind: str, n: int = 120) -> list[tuple[str, ...]]:
    """One text: does it name a cat? A score: how many red ones, on a scale of its own?"""
    texts = sentences(n)
    if kind == "one":
        return [(text, "yes" if "cat" in text.split() else "no") for text in texts]
    return [(text, str(1000 + 50 * text.split().count("red"))) for text in texts]


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
    assert isinstance(found, ClassificationTask)
    scores = found.evaluate(model, [file], (), False, CPU)  # type: ignore[arg-type]
    assert scores[metric] > least
    assert scores["n"] == 120
    assert best[found.validation_metric.key] == pytest.approx(scores[found.validation_metric.key], abs=1e-6)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    validated = next(line for line in log if "valid_loss" in line)
    assert validated.keys() - scores.keys() == {"step", "valid_loss"}  # no perplexity: labels are not text
    if kind == "score":
        predicted = found.make_predictor(model, CPU).predict([(text, "") for text, _ in labelled(kind)])[:, 0]  # type: ignore[arg-type]
        wanted = torch.tensor([float(score) for _, score in labelled(kind)])
        assert float((predicted - wanted).abs().mean()) < 12


def test_it_learns_what_only_both_texts_tell(tmp_path: Path) -> None:
    """Which of two texts counts more? One alone tells four in five at best."""
    generator = random.Random(1)

    def counting(number: int) -> str:
        words = generator.choices(["the", "a", "red"], k=generator.randint(0, 2))
        return " ".join([*words, ("one", "two", "three", "four", "five")[number], generator.choice(["cats", "dogs"])])

    drawn = [generator.sample(range(5), 2) for _ in range(300)]
    rows = [(counting(a), counting(b), "more" if a > b else "fewer") for a, b in drawn]
    train, valid = (
        str(written(tmp_path, part, "text\tpair\tlabel", f"{i}.tsv")) for i, part in enumerate((rows[:200], rows[200:]))
    )
    changes = {"task": {"pooling": "mean"}, "tokenizer": {"vocabulary": 40}, "train": {"steps": 120}}
    shape = {"model": {"n_layers": 2}}
    trained(merged(TRAINING, {"data": {"train": [train], "valid": [valid]}}, changes, shape), tmp_path / "run")
    _, found, model = RunDirectory(tmp_path / "run").load()
    assert isinstance(found, ClassificationTask)
    assert found.labels.paired
    assert found.evaluate(model, [valid], (), False, CPU)["accuracy"] > 0.93  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([("cat", "a")] * 30, {}, "only one label, 'a': nothing to tell apart; is it the right column?"),
        (
            [(f"cat {i}", str(i)) for i in range(130)],
            {},
            "different numbers as labels; for a scale pass --set task.kind",
        ),
        ([("cat", "1")] * 30, {"kind": "score"}, "every score is 1: nothing to tell apart; is it the right column"),
        ([("cat", "a"), ("dog", "b")] * 20, {"class_weights": "c=1"}, "task.class_weights: 'c=1'; accepted: equal"),
    ],
)
def test_labels_that_cannot_be_learned(
    rows: list[tuple[str, ...]], settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = str(written(tmp_path, rows, "text\tlabel"))
    with pytest.raises(ConfigError, match=message):
        trained(merged(TRAINING, {"data": {"train": [file], "valid": [file]}, "task": settings}), tmp_path / "run")


@pytest.mark.parametrize("label", ["a", "nan", "inf", "-Infinity", "1e39"])
@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_score_that_is_no_finite_number_is_named_with_its_line(label: str, name: str, tmp_path: Path) -> None:
    good = [("cat", "1"), ("dog", "2")]
    rows = {"train": good * 10, "valid": good} | {name: [*good, ("red cat", label)]}
    files = {key: [str(written(tmp_path, part, "text\tscore", f"{key}.tsv"))] for key, part in rows.items()}
    with pytest.raises(DataError) as error:
        ready(merged(TRAINING, {"data": files, "task": {"kind": "score"}}), tmp_path / "run")
    found = f"the label '{label}' is not a finite number, but task.kind is score; correct it, or drop the line"
    assert str(error.value) == f"{tmp_path}/{name}.tsv:4: {found}"


def test_a_label_that_is_only_held_out_is_known_all_the_same(tmp_path: Path) -> None:
    rows = labelled("one", 60)
    file = str(written(tmp_path, rows, "text\tlabel"))
    tables = merged(TRAINING, {"data": {"train": [file]}, "train": {"steps": 2, "validate_every": 1}})
    data = ready(tables, tmp_path / "first").config.data
    held = {text for text, *_ in Corpus(LabelledReader(), data, "test").valid_examples()}
    written(tmp_path, [(text, "rare" if text in held else label) for text, label in rows], "text\tlabel")
    trained(tables, tmp_path / "run")
    assert Labels.load(tmp_path / "run").names == ("no", "rare", "yes")


def test_a_label_that_only_validation_has_is_named_with_its_line(tmp_path: Path) -> None:
    train = str(written(tmp_path, labelled("one"), "text\tlabel", "train.tsv"))
    valid = str(written(tmp_path, [("a cat", "yes"), ("a dog", "perhaps")], "text\tlabel", "valid.tsv"))
    message = "valid.tsv:3: the label 'perhaps' does not occur in the training data; known: no, yes"
    with pytest.raises(DataError, match=message):
        ready(merged(TRAINING, {"data": {"train": [train], "valid": [valid]}}), tmp_path / "run")
    one = task(Labels(("no", "yes")))
    with pytest.raises(DataError, match=message):
        one.evaluate(small(one), [valid], (), False, CPU)


class TestPairs:
    """A model that learned from pairs takes pairs, one that learned from single texts takes these; others take both."""

    def test_other_tables_are_refused(self, tmp_path: Path) -> None:
        single, pairs = (task(Labels(LABELS.names, paired=paired)) for paired in (False, True))
        one = str(written(tmp_path, [("cat", "pos")], "text\tlabel", "one.tsv"))
        two = str(written(tmp_path, [("cat", "dog", "pos")], "text\tpair\tlabel", "two.tsv"))
        with pytest.raises(
            DataError, match=r"two.tsv: two texts a line, but .* single texts; ask for the columns TEXT,LAB"
        ):
            single.evaluate(small(single), [two], (), False, CPU)
        with pytest.raises(
            DataError, match=r"one.tsv: one text a line, but .* pairs of texts; ask for the columns TEXT,PAI"
        ):
            pairs.evaluate(small(pairs), [one], (), False, CPU)
        assert single.evaluate(small(single), [two], ("text", "label"), False, CPU)["n"] == 1

    @pytest.mark.parametrize("paired", [False, True])
    def test_training_remembers(self, paired: bool, tmp_path: Path) -> None:
        rows = [(a, b, label) if paired else (a, label) for a, b, label in pairs(60) if b]
        file = str(written(tmp_path, rows, "text\tpair\tlabel" if paired else "text\tlabel"))
        ready(merged(TRAINING, {"data": {"train": [file], "valid": [file]}}), tmp_path / "run")
        assert Labels.load(tmp_path / "run").paired is paired


class TestScale:
    def test_what_is_learned_has_mean_zero_and_deviation_one(self, tmp_path: Path) -> None:
        scores = [1000.0, 1010.0, 1010.0, 1100.0]
        rows = [(text, str(score)) for text, score in zip(sentences(4), scores, strict=True)]
        file = str(written(tmp_path, rows, "text\tscore"))
        tables = merged(TRAINING, {"data": {"train": [file], "valid": [file]}, "task": {"kind": "score"}})
        prepared = ready(merged(tables, {"tokenizer": {"vocabulary": 40}}), tmp_path / "run")
        assert isinstance(prepared.task, ClassificationTask)
        assert prepared.task.labels.scale == (np.mean(scores), np.std(scores))
        batch = prepared.task.make_batch(prepared.train_store, next(prepared.train_order.iterate_epoch()))
        wanted = batch.labels[~batch.labels.isnan()]
        assert_close((wanted.mean(), wanted.std(correction=0)), (torch.tensor(0.0), torch.tensor(1.0)))

    def test_export_puts_it_into_the_last_layer(self, tmp_path: Path) -> None:
        one = task(Labels(paired=False, scale=ScoreScaler(50.0, 10.0)), kind="score")
        model, texts = small(one), [(text, "") for text in sentences(5)]
        predicted = one.make_predictor(model, CPU).predict(texts)
        export_model(kept(one, model, tmp_path / "run"), tmp_path / "theirs", "hf")
        _, back, again = open_model(tmp_path / "theirs")
        assert isinstance(back, ClassificationTask)
        assert (back.labels.scale, back.labels.paired) == (ScoreScaler(), None)
        assert_close(back.make_predictor(again, CPU).predict(texts), predicted, rtol=1e-5, atol=1e-4)  # type: ignore[arg-type]


class TestLongTexts:
    """Texts longer than rows or positions are cut into more windows: nothing is left out."""

    def rows(self) -> list[tuple[str, ...]]:
        short = [(" ".join(DISTINCT[i % 160 : i % 160 + 3]), "yes" if i % 2 else "no") for i in range(1200)]
        return [*short, (" ".join(DISTINCT), "no")]

    @pytest.mark.parametrize(
        ("changes", "n_positions"),
        [
            ({}, 64),
            ({"data": {"max_length": 32}}, 32),
            ({"model": {"n_positions": 24}}, 24),
            ({"data": {"max_length": 48}, "model": {"n_positions": 40}, "task": {"length": 100}}, 40),
        ],
        ids=["chosen", "rows", "positions", "both"],
    )
    def test_in_training(
        self,
        changes: dict[str, dict[str, object]],
        n_positions: int,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = str(written(tmp_path, self.rows(), "text\tlabel"))
        tables = merged(
            TRAINING, {"data": {"train": [file], "valid": [file]}, "tokenizer": {"vocabulary": 160}}, changes
        )
        prepared = ready(tables, tmp_path / "run")
        assert (min(prepared.config.data.max_length, prepared.config.model.n_positions)) == n_positions
        assert isinstance(prepared.task, ClassificationTask)
        ids = prepared.task.tokenizer.encode(" ".join(DISTINCT))
        for store in (prepared.train_store, prepared.valid_store):
            assert store["text"].lengths.max() == n_positions
            windows = [store["text"][item].tolist()[1:-1] for item in range(1200, len(store))]
            assert {index for window in windows for index in window} == set(ids)
        assert prepared.train_order.items is None  # all of the store
        assert "left out" not in capsys.readouterr().err
        again = ready(tables, tmp_path / "run", resume=True)
        assert again.train_store.digest == prepared.train_store.digest
        shutil.rmtree(tmp_path / "run" / "store")
        assert ready(tables, tmp_path / "run", resume=True).train_store.digest == prepared.train_store.digest

    def test_positions_too_few_for_any_text(self, tmp_path: Path) -> None:
        file = str(written(tmp_path, self.rows(), "text\tlabel"))
        tables = merged(TRAINING, {"data": {"train": [file]}, "tokenizer": {"vocabulary": 160}})
        with pytest.raises(ConfigError, match=r"model.n_positions = 7; expected at least 8"):
            ready(merged(tables, {"model": {"n_positions": 7}}), tmp_path / "run")
