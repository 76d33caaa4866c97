"""Labels: in order, saved and loaded, and damage named."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.labels import Labels, ScoreScaler
from regard.errors import CheckpointError, InputError

LABELS = Labels(("neg", "neutral", "pos"), (50, 30, 20))


class TestLabels:
    def test_in_order_with_their_counts(self, tmp_path: Path) -> None:
        labels = Labels.from_occurrences(["b", "10", "9", "a", "b"])
        assert (labels.names, labels.counts) == (("9", "10", "a", "b"), (1, 1, 1, 2))
        labels.save(tmp_path)
        assert Labels.load(tmp_path) == labels

    @pytest.mark.parametrize("paired", [None, False, True])
    def test_pairs_and_a_scale_are_remembered(self, paired: bool | None, tmp_path: Path) -> None:
        labels = Labels(paired=paired, scale=ScoreScaler(1 / 3, 0.1))
        labels.save(tmp_path)
        assert Labels.load(tmp_path) == labels

    def test_an_unknown_one(self) -> None:
        with pytest.raises(
            InputError, match="the label 'great' does not occur in the training data; known: neg, neutral, pos"
        ):
            LABELS.index("great")

    @pytest.mark.parametrize(
        "text",
        [
            *("{", "[]", '{"labels": 3}', '{"labels": [1]}', "{}", '{"labels": [], "paired": "yes"}'),
            *('{"labels": [], "mean": "x"}', '{"labels": [], "deviation": 0}', '{"labels": [], "mean": null}'),
            *(f'{{"labels": ["a", "b"], "counts": {each}}}' for each in ('["x", 0]', "[1, 0]", "[1]", "[1, 1.5]", "1")),
            '{"labels": ["a", "b"], "counts": [1, true]}',
        ],
    )
    def test_damaged(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "labels.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"labels.json: damaged; restore it from a copy"):
            Labels.load(tmp_path)

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"labels.json: no such file; restore it from a copy"):
            Labels.load(tmp_path)
