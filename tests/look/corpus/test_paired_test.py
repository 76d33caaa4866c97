"""The paired t test against the integral of its density and published quantiles."""

from __future__ import annotations

import math

import pytest

from regard.look.corpus.paired_test import paired_t_test, t_quantile, two_sided_p


def tail_by_integration(t: float, degrees: int, n_steps: int = 20_000) -> float:
    """Twice the integral of Student's density from t on, which is 1 minus the one between -t and t (midpoints)."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    step = 2 * t / n_steps
    points = (-t + (number + 0.5) * step for number in range(n_steps))
    return 1 - step * scale * math.fsum((1 + x * x / degrees) ** (-(degrees + 1) / 2) for x in points)


@pytest.mark.parametrize("degrees", [1, 2, 5, 29, 500])
@pytest.mark.parametrize("t", [0.1, 1.0, 2.5])
def test_p_is_the_tail_of_the_density(degrees: int, t: float) -> None:
    assert two_sided_p(t, degrees) == pytest.approx(tail_by_integration(t, degrees), abs=1e-7)
    assert two_sided_p(-t, degrees) == two_sided_p(t, degrees)


@pytest.mark.parametrize(("degrees", "published"), [(1, 12.706), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)])
def test_quantiles_are_the_published_ones(degrees: int, published: float) -> None:
    assert t_quantile(degrees) == pytest.approx(published, abs=6e-4)


def test_a_worked_example() -> None:
    found = paired_t_test([1.0, 2.0, 3.0, 4.0])  # mean 2.5, variance 5/3, standard error sqrt(5/12)
    assert (found.n, found.mean) == (4, 2.5)
    assert found.t == pytest.approx(2.5 / math.sqrt(5 / 12))
    half = 3.1824 * math.sqrt(5 / 12)
    assert (found.low, found.high) == (pytest.approx(2.5 - half, abs=1e-4), pytest.approx(2.5 + half, abs=1e-4))
    assert found.p == pytest.approx(tail_by_integration(found.t, 3), abs=1e-7)


def test_equal_pairs_single_pairs_and_constant_differences() -> None:
    assert paired_t_test([0.0, 0.0, 0.0])[1:] == (0.0, 0.0, 0.0, 0.0, 1.0)
    assert math.isnan(paired_t_test([0.3]).p)
    assert paired_t_test([0.3]).mean == 0.3
    assert paired_t_test([0.5, 0.5]).p == 0.0
