"""The sample that translators are validated on: independent of file order, and followed by a score of all pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import CPU, TO_LEARN, digits, ready, recipe, trained, write_pairs

from regard import config
from regard.runs.run_directory import RunDirectory
from regard.tasks.shared.validation_sample import select_scored_examples
from regard.tasks.translate import TranslationTask
from regard.training.prepare import PreparedRun

SORTED_PAIRS = sorted(digits(40, least=1, most=12), key=lambda pair: len(pair[0]))


@pytest.fixture(autouse=True)
def _sample_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslationTask, "max_scored_examples", 10)


def tables(folder: Path, name: str, pairs: list[tuple[str, str]], *changes: config.Tables) -> config.Tables:
    return recipe(folder, {"data": {"valid": write_pairs(folder, name, pairs)}}, *changes)


def sampled_texts(prepared: PreparedRun) -> list[str]:
    return [prepared.task.example_text(prepared.valid_store, item) for item in prepared.scored_examples.tolist()]


def test_sample_of_a_file_sorted_by_length_has_all_lengths(tmp_path: Path) -> None:
    prepared = ready(tables(tmp_path, "sorted", SORTED_PAIRS), tmp_path / "run")
    lengths = prepared.valid_store["source"].lengths
    assert len(prepared.scored_examples) == 10
    assert lengths[prepared.scored_examples].mean() > 1.5 * lengths[:10].mean()
    assert max(lengths[prepared.scored_examples]) > np.median(lengths)


def test_sample_does_not_depend_on_the_order_of_the_file(tmp_path: Path) -> None:
    forward = ready(tables(tmp_path, "sorted", SORTED_PAIRS), tmp_path / "a")
    reverse = ready(tables(tmp_path, "reversed", SORTED_PAIRS[::-1]), tmp_path / "b")
    assert sampled_texts(forward) == sampled_texts(reverse)[::-1]


def test_sample_does_not_depend_on_the_vocabulary(tmp_path: Path) -> None:
    larger = {"tokenizer": {"vocabulary": 268}}
    one = ready(tables(tmp_path, "sorted", SORTED_PAIRS), tmp_path / "a")
    other = ready(tables(tmp_path, "sorted", SORTED_PAIRS, larger), tmp_path / "b")
    assert one.task.vocabulary_size != other.task.vocabulary_size
    assert sampled_texts(one) == sampled_texts(other)


def test_sample_leaves_out_what_does_not_fit_the_model(tmp_path: Path) -> None:
    prepared = ready(tables(tmp_path, "sorted", SORTED_PAIRS), tmp_path / "run")
    lengths = prepared.task.example_lengths(prepared.valid_store).max(axis=1)
    chosen = select_scored_examples(prepared.task, prepared.valid_store, int(np.median(lengths)))
    assert chosen.tolist() == np.flatnonzero(lengths <= np.median(lengths)).tolist()


def test_best_weights_are_scored_on_all_pairs_at_the_end(tmp_path: Path) -> None:
    changes = {"model": {"n_positions": 64}, "data": {"max_length": 64}, "train": {"average": 2}}
    events = trained(tables(tmp_path, "sorted", SORTED_PAIRS, TO_LEARN, changes), tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    prepared = ready({}, tmp_path / "run", resume=True)
    _, task, model = RunDirectory(tmp_path / "run").load()
    expected = task.compute_validation_metrics(model, prepared.valid_store, np.arange(40), CPU)
    sampled = task.compute_validation_metrics(model, prepared.valid_store, prepared.scored_examples, CPU)
    assert metrics["final"]["examples"] == 40
    assert {key: metrics["final"][key] for key in expected} == pytest.approx(expected)
    assert metrics["best"]["bleu"] == pytest.approx(sampled["bleu"])
    assert events[-1].values["final"] == metrics["final"]


def test_pairs_that_were_all_scored_at_each_validation_are_not_scored_again(tmp_path: Path) -> None:
    events = trained(tables(tmp_path, "few", SORTED_PAIRS[:10]), tmp_path / "run")
    assert "final" not in events[-1].values
    assert "final" not in json.loads((tmp_path / "run" / "metrics.json").read_text())
