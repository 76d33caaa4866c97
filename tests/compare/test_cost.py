"""What times show: from made-up ones that follow the theory, and from others that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.compare import cost
from regard.compare.layers import LAYERS, operations
from regard.compare.part import Found, Setting
from regard.compare.timing import PASSES

WIDTHS, LENGTHS = [64, 256], [16, 32, 64, 128, 256, 512, 1024]
Seconds = Callable[[str, int, int], float]


def found(seconds: Seconds, spread: float = 0.9) -> Found:
    """Times by a formula, each the median of three; the fastest is so much less."""
    times = [
        {
            "layer": layer,
            "passes": passes,
            "width": width,
            "length": n,
            "seconds": [share * seconds(layer, n, width) for share in (9.0, 1.0, spread)],
        }
        for layer in LAYERS
        for passes in PASSES
        for width in WIDTHS
        for n in LENGTHS
    ]
    products = {layer: [4, 4, 4] for layer in LAYERS} | {"LSTM": [4, 8, 16]}
    return {
        "widths": WIDTHS,
        "lengths": LENGTHS,
        "times": times,
        "products": products,
        "product_lengths": [4, 8, 16],
    }


def by_operations(layer: str, length: int, width: int) -> float:
    return 1e-9 * operations(layer, length, width)


def flat(layer: str, length: int, width: int) -> float:
    """As on a machine that does all of it at once, but for recurrence, which waits."""
    return length * 1e-4 if layer == "LSTM" else 1e-3


def test_times_by_the_theory_hold_every_claim() -> None:
    verdicts = [finding.held for finding in cost.findings(found(by_operations))]
    assert verdicts == [True, True, True, True, True, True]


def test_the_median_counts() -> None:
    measured = cost.Measured(found(by_operations))
    assert measured.curve("LSTM", PASSES[0], 64) == [by_operations("LSTM", n, 64) for n in LENGTHS]
    assert measured.across("LSTM", PASSES[0]).exponent == pytest.approx(2)
    assert measured.across("attention alone", PASSES[0]).exponent == pytest.approx(1)


def test_times_that_do_not_grow_say_so() -> None:
    attention, recurrence, whole, *_ = cost.findings(found(flat))
    assert (attention.held, recurrence.held, whole.held) == (False, True, False)
    assert "exponents from 0.00 to 0.00" in attention.because
    assert "less than the theory" in attention.because
    assert "0.00 measured" in whole.because


def test_a_slower_attention_is_said_with_its_lengths() -> None:
    def slow(layer: str, length: int, width: int) -> float:
        return by_operations(layer, length, width) * (100 if layer == "self-attention" else 1)

    findings = [each for each in cost.findings(found(slow)) if "faster than an LSTM" in each.claim]
    assert [each.held for each in findings] == [False, False]
    assert "n = 16, d = 64" in findings[0].because
    assert "d = 64: nowhere" in findings[0].because


def test_times_of_a_busy_machine_refute_nothing() -> None:
    findings = cost.findings(found(flat, spread=0.2))
    assert (findings[0].held, findings[1].held, findings[2].held) == (None, True, None)
    assert "the machine was busy: one median of four is 5.0 times the fastest" in findings[0].because


def test_an_uncertain_exponent_refutes_nothing() -> None:
    def shaky(layer: str, length: int, width: int) -> float:
        return length**1.6 * (3 if length in (128, 512) else 1)

    attention = cost.findings(found(shaky))[0]
    assert attention.held is None


def test_where_attention_becomes_slower_is_where_the_curves_cross() -> None:
    measured = cost.Measured(found(by_operations))
    assert measured.faster_until("attention alone", PASSES[0], 64) == pytest.approx(4 * 64)  # 4 n² d = 16 n d²
    assert measured.faster_until("self-attention", PASSES[0], 64) == pytest.approx(2 * 64)


def test_a_recurrence_without_waiting_would_refute_the_claim() -> None:
    numbers = found(by_operations)
    numbers["products"]["LSTM"] = [4, 4, 4]
    assert cost.findings(numbers)[-1].held is False


def test_everything_is_timed_and_shown(tiny: Path) -> None:
    numbers = cost.measure(Setting(tiny, device="cpu"), {})
    assert len(numbers["times"]) == len(LAYERS) * len(PASSES) * 2 * 4
    assert all(len(each["seconds"]) >= 3 and min(each["seconds"]) > 0 for each in numbers["times"])
    shown = cost.show(numbers)
    assert [len(table.rows) for table in shown.tables] == [16, 4, 4, 4]
    assert all(len(row) == len(table.columns) for table in shown.tables for row in table.rows)
