"""Retrieval and correlation of given vectors, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regard.predict import embedding_scores
from regard.predict.embedding_scores import EmbeddedTexts, score_pairs, score_retrieval


def at(*degrees: float) -> np.ndarray:
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], 1).astype(np.float32) * 3


def test_ranks_by_hand() -> None:
    """The anchor at 0 degrees finds b second, after c; that at 90 finds c first; k is found third."""
    anchors = EmbeddedTexts(["q", "r", "s"], at(0, 90, 180))
    positives = EmbeddedTexts(["b", "c", "k"], at(-40, 30, 41))
    found = score_retrieval(anchors, positives)
    # From 90: k (49), c (60), b (130). From 180: k (139), b (140), c (150).
    assert found["mrr"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert found["accuracy_at_1"] == pytest.approx(1 / 3)
    assert found["accuracy_at_5"] == 1


def test_ranks_do_not_depend_on_the_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors = EmbeddedTexts("pqrst", at(0, 90, 180, 270, 300))
    positives = EmbeddedTexts("abcde", at(10, 20, 175, 100, 310))
    whole = score_retrieval(anchors, positives)
    monkeypatch.setattr(embedding_scores, "QUERIES_PER_BLOCK", 2)
    assert score_retrieval(anchors, positives) == whole


def test_several_positives_count_by_the_nearest_and_equal_texts_once() -> None:
    anchors = EmbeddedTexts(["q", "q", "r"], at(0, 0, 90))
    positives = EmbeddedTexts(["b", "c", "c"], at(50, 10, 10))
    assert score_retrieval(anchors, positives)["mrr"] == pytest.approx((1 + 1 / 2) / 2)


def test_the_anchor_itself_is_not_among_the_documents() -> None:
    anchors = EmbeddedTexts(["q", "r"], at(0, 90))
    positives = EmbeddedTexts(["r", "q"], at(90, 0))
    assert score_retrieval(anchors, positives)["mrr"] == 1


def test_hard_negatives_are_documents_and_ties_count_against_the_model() -> None:
    anchors, positives = EmbeddedTexts(["q", "r"], at(0, 90)), EmbeddedTexts(["b", "c"], at(10, 80))
    assert score_retrieval(anchors, positives)["mrr"] == 1
    assert score_retrieval(anchors, positives, EmbeddedTexts(["m", "n"], at(5, 85)))["mrr"] == pytest.approx(1 / 2)
    collapsed = EmbeddedTexts(["b", "c"], at(7, 7))
    assert score_retrieval(EmbeddedTexts(["q", "r"], at(7, 7)), collapsed)["mrr"] == pytest.approx(1 / 2)


def test_correlations_are_those_of_cosines() -> None:
    found = score_pairs(
        EmbeddedTexts("abc", at(0, 0, 0)), EmbeddedTexts("def", at(5, 50, 20)), np.array([5.0, 1.0, 4.0])
    )
    assert found["spearman"] == pytest.approx(1)
    assert 0.9 < found["pearson"] <= 1
