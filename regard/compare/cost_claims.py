"""Verdicts on the claims about the cost of a layer, from the measured times; shown by cost.py."""

from __future__ import annotations

from itertools import groupby, product

from regard.compare.experiment import Finding, Measurements, combine_verdicts, weigh_evidence
from regard.compare.layer_times import ATTENTION_ONLY, ENCODER_LAYER, LSTM_LAYER, SELF_ATTENTION, LayerTimes
from regard.compare.layers import OPERATION_COUNTS
from regard.compare.timing import PASSES

EXPONENT_TOLERANCE = 0.25
"""Largest difference between a measured exponent and the theoretical one at which they agree."""

TIME_RATIO_TOLERANCE = 1.1
"""Ratio of two times up to which neither counts as faster."""


def judge_claims(measurements: Measurements) -> list[Finding]:
    """Return the verdict on each claim."""
    measured = LayerTimes(measurements)
    return [
        _judge_growth(measured, ATTENTION_ONLY, "The scores and sums of self-attention grow with the square of n."),
        _judge_growth(measured, LSTM_LAYER, "Recurrence grows in proportion to n."),
        _judge_growth(
            measured, ENCODER_LAYER, "A whole encoder layer grows as its operations do, between n and its square."
        ),
        *(_judge_faster_below_width(measured, passes) for passes in PASSES),
        _judge_sequential_steps(measurements),
    ]


def _judge_growth(layer_times: LayerTimes, layer: str, claim: str) -> Finding:
    """Judge whether time grows with n as the operations of a layer do, at every width, forward and backward.

    An exponent outside the tolerance by at most two standard errors does not refute it, nor do times under other load.
    """
    parts, verdicts = [], []
    for passes, width in product(PASSES, layer_times.widths):
        own, expected = (
            layer_times.fit_length_exponent_above_offset(layer, passes, width),
            layer_times.expected_exponent(layer, width),
        )
        verdicts.append(own.agrees_with(expected, EXPONENT_TOLERANCE))
        parts.append(f"{own} measured, {expected:.2f} by operations (d = {width}, {passes})")
    held = combine_verdicts(verdicts)
    quadratic, linear = OPERATION_COUNTS[layer]
    terms = " + ".join(f"{n} {term}" for n, term in ((quadratic, "n² d"), (linear, "n d²")) if n)
    return Finding(
        claim,
        None if layer_times.is_noisy and not held else held,
        f"{layer}, {terms} operations; exponents of n: {'; '.join(parts)}"
        f"{'' if held else f'; {EXPONENT_TOLERANCE:g} off still agrees'}{_noise_note(layer_times)}.",
    )


def _noise_note(layer_times: LayerTimes) -> str:
    """Return a note for findings from times measured under other load."""
    noise = f"one median in four is over {layer_times.noise:.1f} times the fastest of its rounds"
    return f"; the machine was under other load: {noise}" if layer_times.is_noisy else ""


def _judge_faster_below_width(layer_times: LayerTimes, passes: str) -> Finding:
    """Judge whether self-attention is faster than recurrence where n < d (Vaswani et al. 2017, section 4)."""
    ratios = {
        (n, d): ratio
        for d in layer_times.widths
        for n, ratio in layer_times.time_ratios_to_lstm(SELF_ATTENTION, passes, d).items()
        if n < d
    }
    near = {shape: ratio for shape, ratio in ratios.items() if ratio >= 1 / TIME_RATIO_TOLERANCE}
    held = weigh_evidence(not near, max(ratios.values()) > TIME_RATIO_TOLERANCE)
    slowest = ", ".join(f"{ratio:.2f} times as long at n = {n}, d = {d}" for (n, d), ratio in near.items())
    where = ", ".join(
        f"{describe_faster_lengths(layer_times, SELF_ATTENTION, passes, width)} (d = {width})"
        for width in layer_times.widths
    )
    return Finding(
        f"Self-attention, with its projections, is faster than an LSTM wherever n < d ({passes}).",
        None if layer_times.is_noisy and not held else held,
        f"faster {where}; at n < d it takes {max(ratios.values()):.2f} times as long as the LSTM at most"
        f"{'' if held else f': {slowest}; within {TIME_RATIO_TOLERANCE:g} cannot be told'}{_noise_note(layer_times)}.",
    )


def describe_faster_lengths(layer_times: LayerTimes, layer: str, passes: str, width: int) -> str:
    """Return the lengths at which a layer is faster than the LSTM, as ranges of the measured ones."""
    ratios = layer_times.time_ratios_to_lstm(layer, passes, width)
    if max(ratios.values()) < 1:
        return f"at every length up to {layer_times.lengths[-1]:,}"
    groups = groupby(layer_times.lengths, key=lambda length: ratios[length] < 1)
    return ", ".join(_format_range(list(lengths)) for faster, lengths in groups if faster) or "nowhere"


def _format_range(lengths: list[int]) -> str:
    return f"at n = {lengths[0]:,}" + (f" to {lengths[-1]:,}" if len(lengths) > 1 else "")


def _judge_sequential_steps(measurements: Measurements) -> Finding:
    """Judge the number of sequential steps: constant for attention, n for recurrence."""
    own, other, lengths = (
        measurements["products"][SELF_ATTENTION],
        measurements["products"][LSTM_LAYER],
        measurements["product_lengths"],
    )
    counts = [", ".join(map(str, each)) for each in (own, other, lengths)]
    return Finding(
        "Self-attention needs O(1) sequential steps, recurrence O(n).",
        len(set(own)) == 1 and other == lengths,
        f"sequential matrix multiplications: {counts[0]} in self-attention and {counts[1]} in an LSTM, for n = "
        f"{counts[2]} (counted in the autograd graph, not timed).",
    )
