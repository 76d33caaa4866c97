"""Confidence intervals over seeds, against values worked by hand."""

from __future__ import annotations

import math

import pytest

from regard.compare.intervals import MAX_SEEDS, interval_of_geometric_mean, interval_of_mean


def test_interval_of_three_values() -> None:
    """Mean 2, standard deviation 1, so 4.303 / sqrt(3) on either side."""
    interval = interval_of_mean([1.0, 2.0, 3.0])
    assert interval == pytest.approx((2.0, 2 - 2.4843, 2 + 2.4843), abs=1e-3)
    assert interval.format() == "2.0 (-0.5 to 4.5)"
    assert interval.format(2, signed=True) == "+2.00 (-0.48 to +4.48)"
    assert (interval.is_above(-0.5), interval.is_above(0.0), interval.is_below(4.5)) == (True, False, True)


def test_interval_narrows_with_more_seeds() -> None:
    widths = [interval_of_mean([0.0, 1.0] * n).high for n in (1, 2, 5)]
    assert widths == sorted(widths, reverse=True)
    assert interval_of_mean([3.0] * MAX_SEEDS) == (3.0, 3.0, 3.0)


def test_one_value_decides_nothing() -> None:
    interval = interval_of_mean([5.0])
    assert (interval.mean, interval.is_above(-1e9), interval.is_below(1e9)) == (5.0, False, False)


def test_interval_of_ratios_is_that_of_their_logarithms() -> None:
    interval = interval_of_geometric_mean([0.01, 0.1, 1.0])
    assert interval.mean == pytest.approx(0.1)
    assert math.log10(interval.low) == pytest.approx(-1 - 2.4843, abs=1e-3)
    assert math.log10(interval.high) == pytest.approx(-1 + 2.4843, abs=1e-3)
