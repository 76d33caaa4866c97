"""Fits of power laws to synthetic values with known exponents."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.compare.power_law import PowerLawFit, fit_power_law, fit_power_law_above_offset, larger_half

LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]


@given(st.floats(-3, 3), st.floats(1e-6, 1e3))
def test_fit_recovers_the_exponent(exponent: float, factor: float) -> None:
    fit = fit_power_law(LENGTHS, [factor * n**exponent for n in LENGTHS])
    assert fit.exponent == pytest.approx(exponent, abs=1e-9)
    assert fit.standard_error == pytest.approx(0, abs=1e-6)


def test_fit_above_offset_ignores_a_constant() -> None:
    times = [1e-3 + 1e-8 * n**2 for n in LENGTHS]
    whole = fit_power_law(larger_half(LENGTHS), larger_half(times))
    assert 1.3 < whole.exponent < 1.9
    assert fit_power_law_above_offset(LENGTHS, times).exponent == pytest.approx(2, abs=0.01)
    assert fit_power_law_above_offset(LENGTHS, [1e-3 + 1e-6 * n for n in LENGTHS]).exponent == pytest.approx(
        1, abs=0.03
    )


def test_larger_half_includes_the_middle() -> None:
    assert larger_half(LENGTHS) == [256, 512, 1024, 2048, 4096]
    assert larger_half([1, 2, 3, 4]) == [3, 4]
    bent = [float(n) if n <= 256 else n**3 / 256**2 for n in LENGTHS]
    assert fit_power_law(larger_half(LENGTHS), larger_half(bent)).exponent == pytest.approx(3)


def test_constant_values_have_no_exponent_above_offset() -> None:
    none = fit_power_law_above_offset(LENGTHS, [1.0] * len(LENGTHS))
    assert math.isnan(none.exponent)
    assert none.agrees_with(1.0, 0.25) is None
    assert fit_power_law_above_offset(LENGTHS, [5.0, *[2.0] * 6, 10.0, 34.0]).exponent == pytest.approx(
        2
    )  # two are left: 8 and 32 above 2


def test_agreement_is_true_false_or_undecided() -> None:
    assert PowerLawFit(1.8, 0.0).agrees_with(2.0, 0.25) is True
    assert PowerLawFit(1.7, 0.02).agrees_with(2.0, 0.25) is False
    assert PowerLawFit(2.3, 0.02).agrees_with(2.0, 0.25) is False
    assert PowerLawFit(1.7, 0.03).agrees_with(2.0, 0.25) is None
    assert PowerLawFit(2.3, 0.03).agrees_with(2.0, 0.25) is None
    assert PowerLawFit(1.7, math.nan).agrees_with(2.0, 0.25) is None


def test_noise_increases_the_standard_error() -> None:
    noisy = fit_power_law(LENGTHS, [n * (2 if index % 2 else 1) for index, n in enumerate(LENGTHS)])
    assert noisy.standard_error > 0.05
    assert abs(noisy.exponent - 1) < 3 * noisy.standard_error


def test_two_points_have_an_exponent_without_standard_error() -> None:
    fit = fit_power_law([1, 10], [1, 100])
    assert fit.exponent == pytest.approx(2)
    assert math.isnan(fit.standard_error)
    assert str(fit) == "2.00"
    assert str(fit_power_law([1, 10, 100], [1, 10, 100])) == "1.00 ± 0.00"


def test_fit_needs_two_points() -> None:
    with pytest.raises(AssertionError, match="needs two"):
        fit_power_law([1], [1])
