"""Exponents of times that are made up: known ones must be found, and halves must be told apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.compare.fits import crossing, halves, slope

LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]


@given(st.floats(-3, 3), st.floats(1e-6, 1e3))
def test_a_power_law_gives_its_exponent(exponent: float, factor: float) -> None:
    found = slope(LENGTHS, [factor * n**exponent for n in LENGTHS])
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.error == pytest.approx(0, abs=1e-6)


def test_a_constant_part_flattens_the_shorter_half_alone() -> None:
    times = [1e-3 + 1e-8 * n**2 for n in LENGTHS]
    short, long = halves(LENGTHS, times)
    assert short.exponent < 0.4
    assert 1.3 < long.exponent < 2
    assert halves(LENGTHS, [n**2 for n in LENGTHS])[0].exponent == pytest.approx(2)


def test_halves_share_the_middle_of_an_odd_number_and_nothing_of_an_even_one() -> None:
    def bent(at: int) -> list[float]:
        return [float(n) if n <= at else n**3 / at**2 for n in LENGTHS]

    assert [each.exponent for each in halves(LENGTHS, bent(256))] == pytest.approx([1, 3])
    assert [each.exponent for each in halves(LENGTHS[:4], [1, 2, 16, 64])] == pytest.approx([1, 2])


def test_noise_shows_in_the_error() -> None:
    noisy = slope(LENGTHS, [n * (2 if place % 2 else 1) for place, n in enumerate(LENGTHS)])
    assert noisy.error > 0.05
    assert abs(noisy.exponent - 1) < 3 * noisy.error


def test_two_points_have_a_slope_without_an_error() -> None:
    found = slope([1, 10], [1, 100])
    assert found.exponent == pytest.approx(2)
    assert math.isnan(found.error)
    assert str(found) == "2.00"
    assert str(slope([1, 10, 100], [1, 10, 100])) == "1.00 ± 0.00"


def test_a_slope_needs_two_points() -> None:
    with pytest.raises(AssertionError, match="needs two"):
        slope([1], [1])


def test_where_two_curves_cross() -> None:
    square, line = [n**2 for n in LENGTHS], [100 * n for n in LENGTHS]
    assert crossing(LENGTHS, square, line) == pytest.approx(100)
    assert crossing(LENGTHS, line, square) is None  # it is above from the first on, and never catches up from below
    assert crossing(LENGTHS, line, [2 * value for value in line]) is None
