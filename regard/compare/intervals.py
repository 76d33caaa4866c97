"""Means over training runs with different seeds, and their 95 % confidence intervals (Student's t)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Quantiles at 97.5 % of Student's t for 1 to 9 degrees of freedom."""

MAX_SEEDS = len(T_QUANTILES) + 1
"""Most values of which an interval can be computed."""


class MeanInterval(NamedTuple):
    """A mean and the ends of its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def format(self, digits: int = 1, *, signed: bool = False) -> str:
        """Return the mean with its interval, as in "4.2 (3.9 to 4.5)"."""
        sign = "+" if signed else ""
        return f"{self.mean:{sign}.{digits}f} ({self.low:{sign}.{digits}f} to {self.high:{sign}.{digits}f})"

    def is_above(self, value: float) -> bool:
        """Return True if the whole interval lies above a value."""
        return self.low > value

    def is_below(self, value: float) -> bool:
        """Return True if the whole interval lies below a value."""
        return self.high < value


def interval_of_mean(values: Sequence[float]) -> MeanInterval:
    """Return the mean of independent values, one for each seed, with its interval; of one value it is unbounded."""
    assert 1 <= len(values) <= MAX_SEEDS, f"{len(values)} values; expected 1 to {MAX_SEEDS}"
    mean = fmean(values)
    if len(values) == 1:
        return MeanInterval(mean, -math.inf, math.inf)
    margin = T_QUANTILES[len(values) - 2] * stdev(values) / math.sqrt(len(values))
    return MeanInterval(mean, mean - margin, mean + margin)


def interval_of_geometric_mean(values: Sequence[float]) -> MeanInterval:
    """Return the geometric mean of positive values with its interval: that of the logarithms, exponentiated."""
    return MeanInterval(*map(math.exp, interval_of_mean([math.log(value) for value in values])))
