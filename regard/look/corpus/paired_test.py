"""Student's paired t test: is the mean of the differences of pairs 0?

    t = mean / (s / sqrt(n))         p = I(v / (v + t^2); v / 2, 1 / 2)  with v = n - 1 degrees of freedom

I is the regularised incomplete beta function, here by its continued fraction (Abramowitz and Stegun 1964, 26.5.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class PairedTest(NamedTuple):
    """The mean difference of n pairs with its 95 % interval, t, and the two-sided p; NaN where n is less than 2."""

    n: int
    mean: float
    low: float
    high: float
    t: float
    p: float


def paired_t_test(differences: Sequence[float]) -> PairedTest:
    """Test the differences of pairs; equal pairs throughout have t 0 and p 1."""
    n, nan = len(differences), math.nan
    mean = math.fsum(differences) / n if n else nan
    if n < 2:
        return PairedTest(n, mean, nan, nan, nan, nan)
    error = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (n - 1) / n)
    if error == 0:
        return PairedTest(n, mean, mean, mean, 0.0 if mean == 0 else math.copysign(math.inf, mean), float(mean == 0))
    half = t_quantile(n - 1) * error
    return PairedTest(n, mean, mean - half, mean + half, mean / error, two_sided_p(mean / error, n - 1))


def two_sided_p(t: float, degrees: int) -> float:
    """Return the probability that a t with that many degrees of freedom is at least as far from 0."""
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def t_quantile(degrees: int, confidence: float = 0.95) -> float:
    """Return the t that is exceeded on either side with probability ``1 - confidence``, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, degrees) > 1 - confidence else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function; the fraction converges fast for x < (a + 1) / (a + b + 2)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    fraction = 1.0
    for m in range(200, 0, -1):  # from the innermost term outwards
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    return front / a / fraction
