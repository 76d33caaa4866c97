"""Fits of power laws: the exponent with which one quantity grows with another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Numbers = Sequence[int | float]


class PowerLawFit(NamedTuple):
    """An exponent and its standard error, which is unknown (nan) for two points, so that two points refute nothing."""

    exponent: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f}" + (f" ± {self.standard_error:.2f}" if math.isfinite(self.standard_error) else "")

    def agrees_with(self, expected: float, tolerance: float) -> bool | None:
        """Return True within the tolerance, None within two further standard errors, else False."""
        deviation = abs(self.exponent - expected)
        if deviation <= tolerance:
            return True
        return False if deviation > tolerance + 2 * self.standard_error else None


def fit_power_law(x: Numbers, y: Numbers) -> PowerLawFit:
    """Fit ``a`` in ``y = c x^a`` by least squares on the logarithms."""
    assert len(x) == len(y) >= 2, f"{len(x)} and {len(y)} values; a slope needs two of each"
    logs_x, logs_y = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_x, mean_y = sum(logs_x) / len(x), sum(logs_y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in logs_x)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(logs_x, logs_y, strict=True)) / spread
    residual = sum((b - mean_y - exponent * (a - mean_x)) ** 2 for a, b in zip(logs_x, logs_y, strict=True))
    degrees_of_freedom = len(x) - 2
    if not degrees_of_freedom:
        return PowerLawFit(exponent, math.nan)
    return PowerLawFit(exponent, math.sqrt(residual / degrees_of_freedom / spread))


def larger_half(values: Numbers) -> Numbers:
    """Return the second half of ascending values, with the middle one."""
    return values[len(values) // 2 :]


def fit_power_law_above_offset(x: Numbers, y: Numbers) -> PowerLawFit:
    """Fit ``y = b + c x^a`` over the larger half of x, with b the least y of the smaller half.

    The exponent is nan if noise leaves fewer than two values above b.
    """
    offset = min(y[: len(y) // 2])
    above = [(a, b - offset) for a, b in zip(larger_half(x), larger_half(y), strict=True) if b > offset]
    return fit_power_law(*zip(*above, strict=True)) if len(above) > 1 else PowerLawFit(math.nan, math.nan)
