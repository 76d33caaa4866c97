"""How one quantity grows with another: the exponent of a power law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Numbers = Sequence[int | float]


class PowerLawFit(NamedTuple):
    """An exponent, with its standard error; that of two points is not known (nan), so they refute nothing."""

    exponent: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f}" + (f" ± {self.standard_error:.2f}" if math.isfinite(self.standard_error) else "")

    def agrees_with(self, expected: float, tolerance: float) -> bool | None:
        """Whether it is as near as that; None where it is not, but by no more than two of its standard errors."""
        away = abs(self.exponent - expected)
        if away <= tolerance:
            return True
        return False if away > tolerance + 2 * self.standard_error else None


def fit_power_law(x: Numbers, y: Numbers) -> PowerLawFit:
    """The ``a`` of ``y = c x^a``: least squares on the logarithms of both."""
    assert len(x) == len(y) >= 2, f"{len(x)} and {len(y)} values; a slope needs two of each"
    logs_x, logs_y = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_x, mean_y = sum(logs_x) / len(x), sum(logs_y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in logs_x)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(logs_x, logs_y, strict=True)) / spread
    left = sum((b - mean_y - exponent * (a - mean_x)) ** 2 for a, b in zip(logs_x, logs_y, strict=True))
    free = len(x) - 2
    return PowerLawFit(exponent, math.sqrt(left / free / spread) if free else math.nan)


def larger_half(values: Numbers) -> Numbers:
    """The values from the middle one on; of an even number, the second half."""
    return values[len(values) // 2 :]


def fit_power_law_above_offset(x: Numbers, y: Numbers) -> PowerLawFit:
    """The slope, over the larger half of x, of what y has above its least value before: a constant does not count.

    Where noise leaves less than two values above that, there is none (nan).
    """
    least = min(y[: len(y) // 2])
    above = [(a, b - least) for a, b in zip(larger_half(x), larger_half(y), strict=True) if b > least]
    return fit_power_law(*zip(*above, strict=True)) if len(above) > 1 else PowerLawFit(math.nan, math.nan)
