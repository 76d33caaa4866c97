"""Accuracy, F1, Matthews and the correlations: worked by hand, and against their definitions in many words."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import accuracy, f1, macro_f1, matthews, pearson, spearman

answers = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30)
scores = st.integers(-50, 50).map(lambda number: number / 4)
scored = st.lists(st.tuples(scores, scores), max_size=20)


def sides(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [gold for gold, _ in pairs], [predicted for _, predicted in pairs]


def plain_matthews(gold: list[str], predicted: list[str]) -> float:
    """The correlation of two matrices of one-hot rows, sum over classes of covariances (Gorodkin 2004, eq. 2-4)."""

    def covariance(x: list[str], y: list[str]) -> float:
        n = len(x)
        return sum(
            sum(((a == c) - x.count(c) / n) * ((b == c) - y.count(c) / n) for a, b in zip(x, y, strict=True))
            for c in "abc"
        )

    spread = covariance(gold, gold) * covariance(predicted, predicted)
    return covariance(gold, predicted) / math.sqrt(spread) if spread > 1e-9 else 0.0


def plain_f1(gold: list[str], predicted: list[str], positive: str) -> float:
    tp = sum(g == positive and p == positive for g, p in zip(gold, predicted, strict=True))
    fp = sum(g != positive and p == positive for g, p in zip(gold, predicted, strict=True))
    fn = sum(g == positive and p != positive for g, p in zip(gold, predicted, strict=True))
    precision, recall = tp / (tp + fp) if tp + fp else 0.0, tp / (tp + fn) if tp + fn else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def plain_pearson(x: list[float], y: list[float]) -> float:
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    covariance = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    spread_x, spread_y = math.fsum((a - mean_x) ** 2 for a in x), math.fsum((b - mean_y) ** 2 for b in y)
    return covariance / math.sqrt(spread_x * spread_y)


def plain_rank(x: list[float], score: float) -> float:
    """Return the number of lower scores plus the mean rank among equal ones."""
    return sum(other < score for other in x) + (1 + sum(other == score for other in x)) / 2


class TestClasses:
    GOLD = "aaaabbbccc"
    PREDICTED = "aabcbbacca"

    def test_worked_by_hand(self) -> None:
        """By class: gold 4, 3, 3; predicted 4, 3, 3; correct 2, 2, 2."""
        assert accuracy(self.GOLD, self.PREDICTED) == 0.6
        assert f1(self.GOLD, self.PREDICTED, "a") == 4 / 8
        assert f1(self.GOLD, self.PREDICTED, "b") == 4 / 6
        assert macro_f1(self.GOLD, self.PREDICTED) == pytest.approx((4 / 8 + 4 / 6 + 4 / 6) / 3)
        assert matthews(self.GOLD, self.PREDICTED) == pytest.approx((10 * 6 - 34) / (100 - 34))

    def test_matthews_of_two_classes(self) -> None:
        """tp 3, tn 2, fp 1, fn 2: (3 * 2 - 1 * 2) / sqrt(4 * 5 * 3 * 4)."""
        gold = [1, 1, 1, 0, 0, 0, 1, 1]
        predicted = [1, 1, 1, 0, 0, 1, 0, 0]
        assert matthews(gold, predicted) == pytest.approx(4 / math.sqrt(240))
        assert matthews([0, 1, 0], [1, 0, 1]) == pytest.approx(-1)

    def test_undefined_scores_are_zero(self) -> None:
        assert f1("ab", "ba", "z") == 0.0
        assert matthews("aab", "aaa") == matthews("aaa", "aab") == matthews("aaa", "aaa") == 0.0
        assert accuracy([], []) == macro_f1([], []) == matthews([], []) == f1([], [], "a") == 0.0

    def test_a_class_that_is_only_predicted_counts_in_the_mean(self) -> None:
        assert macro_f1("aa", "ab") == pytest.approx((2 / 3 + 0) / 2)

    def test_many_examples_do_not_overflow(self) -> None:
        assert matthews([0, 1] * 10**6, [0, 1] * 10**6) == pytest.approx(1)

    def test_both_sides_must_be_equally_long(self) -> None:
        for score in (accuracy, macro_f1, matthews, lambda g, p: f1(g, p, "a")):
            with pytest.raises(ValueError, match="shorter"):
                score("ab", "a")

    @given(answers)
    def test_against_the_definitions(self, pairs: list[tuple[str, str]]) -> None:
        gold, predicted = sides(pairs)
        classes = sorted({*gold, *predicted})
        by_class = [plain_f1(gold, predicted, positive) for positive in classes]
        assert [f1(gold, predicted, positive) for positive in classes] == pytest.approx(by_class)
        assert macro_f1(gold, predicted) == pytest.approx(sum(by_class) / len(classes))
        assert matthews(gold, predicted) == pytest.approx(plain_matthews(gold, predicted), abs=1e-9)

    @given(answers)
    def test_laws(self, pairs: list[tuple[str, str]]) -> None:
        gold, predicted = sides(pairs)
        assert accuracy(gold, gold) == macro_f1(gold, gold) == 1.0
        assert matthews(gold, gold) == pytest.approx(float(len(set(gold)) > 1))
        assert -1 - 1e-9 <= matthews(gold, predicted) <= 1 + 1e-9
        names = {"a": 7, "b": 1, "c": -2}
        renamed = [names[g] for g in gold], [names[p] for p in predicted]
        for score in (accuracy, macro_f1, matthews):
            assert score(*renamed) == pytest.approx(score(gold, predicted))
            assert score(predicted, gold) == pytest.approx(score(gold, predicted))


class TestCorrelations:
    def test_pearson_worked_by_hand(self) -> None:
        assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
        assert pearson([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
        assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
        assert pearson([-1, 0, 1], [1, 0, 1]) == pytest.approx(0)

    def test_spearman_with_ties_worked_by_hand(self) -> None:
        """Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)."""
        assert spearman([10, 20, 20, 900], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
        assert spearman([1, 2, 3], [1, 8, 1000]) == pytest.approx(1)

    @pytest.mark.parametrize("correlation", [pearson, spearman])
    @pytest.mark.parametrize(
        ("gold", "predicted"),
        [
            ([], []),
            ([1.0], [2.0]),
            ([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]),
            ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]),
            ([1.0, math.nan, 3.0], [1.0, 2.0, 3.0]),
            ([1.0, 2.0, 3.0], [1.0, math.inf, 3.0]),
        ],
    )
    def test_undefined_is_nan(self, correlation: object, gold: list[float], predicted: list[float]) -> None:
        assert callable(correlation)
        assert math.isnan(correlation(gold, predicted))

    def test_huge_scores_do_not_overflow(self) -> None:
        assert pearson([1e200, 2e200, 3e200], [1e-200, 2e-200, 3e-200]) == pytest.approx(1)

    def test_numpy_arrays_are_accepted(self) -> None:
        assert pearson(np.arange(3, dtype=np.float32), np.arange(3)) == pytest.approx(1)

    def test_both_sides_must_be_equally_long(self) -> None:
        for correlation in (pearson, spearman):
            with pytest.raises(AssertionError, match="2 scores against 3"):
                correlation([1, 2], [1, 2, 3])

    @given(scored)
    def test_against_the_definitions(self, pairs: list[tuple[float, float]]) -> None:
        x, y = [a for a, _ in pairs], [b for _, b in pairs]
        if len(set(x)) < 2 or len(set(y)) < 2:
            assert math.isnan(pearson(x, y))
            assert math.isnan(spearman(x, y))
        else:
            ranks = [plain_rank(x, a) for a in x], [plain_rank(y, b) for b in y]
            assert pearson(x, y) == pytest.approx(plain_pearson(x, y), abs=1e-9)
            assert spearman(x, y) == pytest.approx(plain_pearson(*ranks), abs=1e-9)

    @given(scored)
    def test_laws(self, pairs: list[tuple[float, float]]) -> None:
        x, y = [a for a, _ in pairs], [b for _, b in pairs]
        for correlation, monotone in product((pearson, spearman), (lambda a: 2 * a - 5, lambda a: -a)):
            sign = monotone(1) - monotone(0)
            transformed = correlation([monotone(a) for a in x], y)
            assert transformed == pytest.approx(math.copysign(1, sign) * correlation(x, y), nan_ok=True, abs=1e-9)
            assert correlation(y, x) == pytest.approx(correlation(x, y), nan_ok=True, abs=1e-9)
        for rising in (math.exp, math.atan, lambda a: a**3):
            assert spearman([rising(a) for a in x], y) == pytest.approx(spearman(x, y), nan_ok=True, abs=1e-9)
