"""How one quantity grows with another: the exponent of a power law, and where two curves cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Numbers = Sequence[int | float]


class Slope(NamedTuple):
    """An exponent, with its standard error; that of two points is not known (nan)."""

    exponent: float
    error: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f}" + (f" ± {self.error:.2f}" if math.isfinite(self.error) else "")


def slope(x: Numbers, y: Numbers) -> Slope:
    """The ``a`` of ``y = c x^a``: least squares on the logarithms of both."""
    assert len(x) == len(y) >= 2, f"{len(x)} and {len(y)} values; a slope needs two of each"
    logs_x, logs_y = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_x, mean_y = sum(logs_x) / len(x), sum(logs_y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in logs_x)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(logs_x, logs_y, strict=True)) / spread
    left = sum((b - mean_y - exponent * (a - mean_x)) ** 2 for a, b in zip(logs_x, logs_y, strict=True))
    free = len(x) - 2
    return Slope(exponent, math.sqrt(left / free / spread) if free else math.nan)


def halves(x: Numbers, y: Numbers) -> tuple[Slope, Slope]:
    """The slope over the smaller half and over the larger half; of an odd number, the middle belongs to both."""
    middle = len(x) // 2
    return slope(x[: len(x) - middle], y[: len(y) - middle]), slope(x[middle:], y[middle:])


def crossing(x: Numbers, one: Numbers, other: Numbers) -> float | None:
    """The first x at which `one`, smaller until then, has grown to `other`: between points, on straight logarithms."""
    apart = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    for (here, there), (before, after) in zip(pairwise(x), pairwise(apart), strict=True):
        if before < 0 <= after:
            share = before / (before - after)
            return float(math.exp(math.log(here) + share * math.log(there / here)))
    return None
