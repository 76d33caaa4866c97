"""Verdicts on the cost of layers, from synthetic times that follow the theory and from others that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard.compare import timing
from regard.compare.cost_claims import describe_faster_lengths, judge_claims
from regard.compare.experiment import Measurements
from regard.compare.layer_times import LayerTimes
from regard.compare.layers import LAYERS, count_operations
from regard.compare.timing import PASSES, TimingCase, time_cases

WIDTHS, LENGTHS = [64, 256], [16, 32, 64, 128, 256, 512, 1024]
Seconds = Callable[[str, int, int], float]


def make_measurements(seconds: Seconds, spread: float = 0.9) -> Measurements:
    """Return measurements with times by a formula, each the median of three, and a faster round."""
    times = [
        {
            "layer": layer,
            "passes": passes,
            "width": width,
            "length": n,
            "seconds": [factor * seconds(layer, n, width) for factor in (9.0, 1.0, spread)],
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
    return 1e-9 * count_operations(layer, length, width)


def waiting(layer: str, length: int, width: int) -> float:
    """Return times on a fully parallel machine, linear for recurrence, with call overhead."""
    return 1e-3 + (length * 1e-4 if layer == "LSTM" else 1e-6 * length**0.5)


def with_a_call(layer: str, length: int, width: int) -> float:
    """Return times by operations with a constant call overhead, that of a few hundred tokens."""
    return by_operations(layer, length, width) + by_operations("LSTM", 200, width)


def self_attention_takes(*times: float) -> Seconds:
    """Return times of self-attention as multiples of the LSTM's at each length; the others by operations."""

    def seconds(layer: str, length: int, width: int) -> float:
        if layer == "self-attention":
            return times[LENGTHS.index(length)] * by_operations("LSTM", length, width)
        return by_operations(layer, length, width)

    return seconds


def test_times_by_operation_count_support_every_claim() -> None:
    assert [finding.held for finding in judge_claims(make_measurements(by_operations))] == [True] * 6


def test_call_overhead_does_not_refute_growth() -> None:
    numbers = make_measurements(with_a_call)
    assert [finding.held for finding in judge_claims(numbers)[:3]] == [True] * 3
    assert LayerTimes(numbers).fit_length_exponent("attention alone", PASSES[0], 256).exponent < 1.5
    assert LayerTimes(numbers).fit_length_exponent_above_offset(
        "attention alone", PASSES[0], 256
    ).exponent == pytest.approx(2, abs=0.02)


def test_medians_are_used() -> None:
    measured = LayerTimes(make_measurements(by_operations))
    assert measured.median_times("LSTM", PASSES[0], 64) == [by_operations("LSTM", n, 64) for n in LENGTHS]
    assert measured.fit_width_exponent("LSTM", PASSES[0]).exponent == pytest.approx(2)
    assert measured.fit_width_exponent("attention alone", PASSES[0]).exponent == pytest.approx(1)


def test_other_growth_is_reported_with_both_exponents() -> None:
    attention, recurrence, whole, *_ = judge_claims(make_measurements(waiting))
    assert (attention.held, recurrence.held, whole.held) == (False, True, False)
    assert "0.64 ± 0.02 measured, 2.01 by operations (d = 64, forward)" in attention.evidence
    assert "0.25 off still agrees" in attention.evidence
    assert "4 n² d + 24 n d² operations" in whole.evidence


def test_constant_times_are_undecided() -> None:
    assert [each.held for each in judge_claims(make_measurements(lambda *_: 1e-3))[:3]] == [None] * 3


def test_times_under_other_load_refute_nothing() -> None:
    numbers = judge_claims(make_measurements(waiting, spread=0.2))
    assert [each.held for each in numbers[:3]] == [None, True, None]
    assert (
        "the machine was under other load: one median in four is over 5.0 times the fastest of its rounds"
        in numbers[0].evidence
    )
    assert "the machine was under other load" in numbers[1].evidence  # it holds all the same
    slower = judge_claims(make_measurements(self_attention_takes(*[2.0] * 7), spread=0.2))[3]
    assert slower.held is None
    assert "the machine was under other load" in slower.evidence


def test_uncertain_exponent_refutes_nothing() -> None:
    def shaky(layer: str, length: int, width: int) -> float:
        return length ** (2.2 if layer == "encoder layer" else 1.6) * (3 if length in (128, 512) else 1)

    attention, _, whole, *_ = judge_claims(make_measurements(shaky))
    assert (attention.held, whole.held) == (None, None)


def shorter(*times: float) -> tuple[bool | None, str]:
    """Return the finding on n < d."""
    finding = judge_claims(make_measurements(self_attention_takes(*times)))[3]
    assert "faster than an LSTM wherever n < d (forward)" in finding.claim
    return finding.held, finding.evidence


def test_faster_at_every_length_below_the_width_supports_the_claim() -> None:
    held, because = shorter(0.5, 0.5, 0.5, 0.8, 2, 2, 2)
    assert held is True
    assert "faster at n = 16 to 128 (d = 64), at n = 16 to 128 (d = 256)" in because
    assert "0.80 times as long as the LSTM at most." in because


def test_slower_at_one_length_below_the_width_refutes_the_claim() -> None:
    held, because = shorter(1.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    assert held is False
    assert "1.40 times as long at n = 16, d = 64, 1.40 times as long at n = 16, d = 256" in because


def test_nearly_equal_times_are_undecided() -> None:
    for near in (0.95, 1.05):
        held, because = shorter(near, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
        assert held is None
        assert f"{near:.2f} times as long at n = 16, d = 64" in because
        assert "within 1.1 cannot be told" in because


@pytest.mark.parametrize(
    ("times", "description"),
    [
        ([2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], "at n = 32 to 1,024"),
        ([2, 0.5, 0.5, 2, 2, 2, 2], "at n = 32 to 64"),
        ([0.5, 2, 2, 2, 2, 2, 0.5], "at n = 16, at n = 1,024"),
        ([0.5, 0.5, 2, 2, 2, 2, 2], "at n = 16 to 32"),
        ([1, 1, 1, 1, 1, 1, 1], "nowhere"),
        ([0.5] * 7, "at every length up to 1,024"),
    ],
)
def test_ranges_of_lengths_at_which_attention_is_faster(times: list[float], description: str) -> None:
    measured = LayerTimes(make_measurements(self_attention_takes(*times)))
    assert describe_faster_lengths(measured, "self-attention", PASSES[0], 64) == description


def test_attention_alone_has_fewer_operations_below_four_times_the_width() -> None:
    measured = LayerTimes(make_measurements(by_operations))
    assert describe_faster_lengths(measured, "attention alone", PASSES[0], 64) == "at n = 16 to 128"  # 4 n² d < 16 n d²
    assert describe_faster_lengths(measured, "self-attention", PASSES[0], 64) == "at n = 16 to 64"


def test_recurrence_in_constant_steps_would_refute_the_claim() -> None:
    numbers = make_measurements(by_operations)
    numbers["products"]["LSTM"] = [4, 4, 4]
    waits = judge_claims(numbers)[-1]
    assert waits.held is False
    assert "4, 4, 4 in self-attention and 4, 4, 4 in an LSTM, for n = 4, 8, 16" in waits.evidence


class Clock:
    """Time that passes only while a layer is called: a millisecond per token of its input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, 0
        clock = self

        def run_once(case: timing._PreparedCase) -> None:
            clock.now += case.x.shape[1] / 1000
            clock.calls += 1

        monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
        monkeypatch.setattr(timing._PreparedCase, "_run_once", run_once)


def test_times_are_those_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that is faster than the shortest interval is called several times in it."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(timing, "MIN_TIMED_SECONDS", 0.008)
    cases = [TimingCase("self-attention", PASSES[0], 64, length) for length in (2, 32)]
    times = time_cases(cases, 0.0, torch.device("cpu"), 0)
    assert times == {cases[0]: [pytest.approx(0.002)] * 3, cases[1]: [pytest.approx(0.032)] * 3}
    assert clock.calls == 2 * 2 + 3 * (4 + 1), "warmed up, measured, and timed in three rounds"


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 3), (0.31, 4), (1000.0, 25)])
def test_rounds_fill_the_time(monkeypatch: pytest.MonkeyPatch, budget: float, rounds: int) -> None:
    Clock(monkeypatch)
    (times,) = time_cases([TimingCase("LSTM", PASSES[1], 8, 100)], budget, torch.device("cpu"), 0).values()
    assert len(times) == rounds


@pytest.mark.parametrize(("passes", "has_backward"), [(PASSES[0], False), (PASSES[1], True)])
def test_passes_that_are_timed_are_computed(passes: str, has_backward: bool) -> None:
    """The gradients are those of the input and of every parameter."""
    layer, computed = nn.Linear(4, 4), Counter[str]()
    case = timing._PreparedCase(TimingCase("linear", passes, 4, 3), layer, torch.device("cpu"))
    layer.register_forward_hook(lambda *_: computed.update(["forward"]))
    gradients = {"weight": layer.weight, "bias": layer.bias} | ({"input": case.x} if has_backward else {})
    for name, tensor in gradients.items():
        tensor.register_hook(lambda _, name=name: computed.update([name]))
    case.n_calls = 2
    case.time_one_call()
    assert computed == dict.fromkeys(("forward", *(gradients if has_backward else ())), 2)
