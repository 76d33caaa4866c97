"""BLEU, chrF and perplexity: worked by hand, and as sacrebleu has them; the other scores have files of their own."""

from __future__ import annotations

import math

import pytest

from regard.metrics import perplexity, translation_score


def test_bleu_worked_by_hand() -> None:
    """13 words against 13: 12 words, 10 pairs, 8 triples and 6 quadruples match."""
    hypothesis = ["the cat sat on the mat and the dog lay on the rug"]
    reference = ["the cat sat on the mat and a dog lay on the rug"]
    expected = 100 * (12 / 13 * 10 / 12 * 8 / 11 * 6 / 10) ** 0.25
    assert translation_score(hypothesis, reference).bleu == pytest.approx(expected)


def test_brevity_penalty() -> None:
    score = translation_score(["a b c d e"], ["a b c d e f g h i j"])
    assert score.bleu == pytest.approx(100 * math.exp(1 - 10 / 5))


def test_equal_texts_score_best_and_disjoint_ones_zero() -> None:
    score = translation_score(["a b c d", "e f g h"], ["a b c d", "e f g x"])
    assert score.exact == 0.5
    assert score.bleu < 100
    perfect = translation_score(["a b c d"] * 3, ["a b c d"] * 3)
    assert (perfect.bleu, perfect.chrf, perfect.exact) == (pytest.approx(100), pytest.approx(100), 1.0)


def test_signatures_name_the_case_and_the_version() -> None:
    cased = translation_score(["A b c d"], ["a b c d"])
    lowered = translation_score(["A b c d"], ["a b c d"], lowercase=True)
    assert "case:mixed" in cased.bleu_signature
    assert "case:lc" in lowered.bleu_signature
    assert "nc:6" in cased.chrf_signature
    assert "version:" in cased.bleu_signature
    assert cased.bleu < lowered.bleu == pytest.approx(100)


def test_hypotheses_and_references_must_be_equally_many() -> None:
    with pytest.raises((ValueError, EOFError)):
        translation_score(["a"], ["a", "b"])


def test_perplexity() -> None:
    assert perplexity(3 * math.log(7), 3) == pytest.approx(7)
    assert perplexity(0.0, 5) == 1.0
    assert perplexity(1e6, 1) == math.inf
