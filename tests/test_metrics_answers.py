"""Exact match and F1 of answers against SQuAD's definition, written out plainly, and the best threshold by search."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from regard.metrics import AnswerScore, answer_score, best_threshold, mean_answer_score, normalise_answer

WORDS = ["the", "a", "An", "Tokyo", "tokyo,", "7:30", "P.M.", "", "é", "U.S.", "cat-like", "…"]


def plain_words(text: str) -> list[str]:
    """Lower case, no punctuation, no articles: word by word and letter by letter."""
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    letters = "".join(letter for letter in text.lower() if letter not in punctuation)
    return [word for word in letters.split() if word not in ("a", "an", "the")]


def plain_f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    left, n_same = Counter(gold), 0
    for word in predicted:
        if left[word] > 0:
            left[word] -= 1
            n_same += 1
    if n_same == 0:
        return 0.0
    precision, recall = n_same / len(predicted), n_same / len(gold)
    return 2 * precision * recall / (precision + recall)


def test_scores_equal_the_plain_definition() -> None:
    draw = random.Random(0)
    for _ in range(500):
        predicted, *gold = (" ".join(draw.choices(WORDS, k=draw.randint(0, 4))) for _ in range(draw.randint(2, 4)))
        exact = float(any(plain_words(predicted) == plain_words(text) for text in gold))
        f1 = max(plain_f1(plain_words(predicted), plain_words(text)) for text in gold)
        assert answer_score(predicted, gold) == pytest.approx((exact, f1))


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        ("The U.S. Army", ["us army"], (1.0, 1.0)),
        ("in Tokyo", ["Tokyo", "Japan"], (0.0, 2 / 3)),
        ("Oslo", ["Tokyo"], (0.0, 0.0)),
        ("", [], (1.0, 1.0)),
        ("Tokyo", [], (0.0, 0.0)),
        ("", ["Tokyo"], (0.0, 0.0)),
    ],
)
def test_scores_worked_by_hand(predicted: str, gold: list[str], expected: tuple[float, float]) -> None:
    assert answer_score(predicted, gold) == pytest.approx(expected)


def test_means() -> None:
    assert mean_answer_score(["Oslo", "in Tokyo"], [["oslo"], ["Tokyo"]]) == pytest.approx((0.5, 5 / 6))
    assert mean_answer_score(["a b"], [["b"]]) == AnswerScore(1.0, 1.0)
    assert normalise_answer("  The  Cat, a-n An ant ") == "cat ant"


def test_best_threshold_equals_a_search() -> None:
    draw = random.Random(1)
    for _ in range(50):
        n = draw.randint(1, 8)
        margins = [float(draw.randint(-3, 3)) for _ in range(n)]
        answered, unanswered = ([draw.choice([0.0, 0.5, 1.0]) for _ in range(n)] for _ in range(2))

        def mean(threshold: float) -> float:
            scores = zip(margins, answered, unanswered, strict=True)  # noqa: B023
            return sum(b if margin > threshold else a for margin, a, b in scores) / n  # noqa: B023

        found = best_threshold(margins, answered, unanswered)
        assert found.score == pytest.approx(max(mean(threshold) for threshold in (-9.0, *margins)))
        assert found.score == pytest.approx(mean(found.threshold))
