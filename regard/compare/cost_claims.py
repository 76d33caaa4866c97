"""Which claims on the cost of a layer held in the times measured; cost.py shows them."""

from __future__ import annotations

from itertools import groupby, product

from regard.compare.layers import OPERATIONS
from regard.compare.measured import ATTENTION, LAYER, LSTM, WHOLE, Measured
from regard.compare.part import Finding, Found, either, jointly
from regard.compare.timing import PASSES

NEAR = 0.25
"""How far a measured exponent may be from that of the theory and still agree with it."""

ALIKE = 1.1
"""Times that are no further apart than by this factor are not told apart."""


def findings(found: Found) -> list[Finding]:
    """Which of the claims held in these times."""
    measured = Measured(found)
    return [
        _grows(measured, ATTENTION, "The scores and sums of self-attention grow with the square of n."),
        _grows(measured, LSTM, "Recurrence grows in proportion to n."),
        _grows(measured, WHOLE, "A whole encoder layer grows as its operations do, between n and its square."),
        *(_shorter(measured, passes) for passes in PASSES),
        _waits(found),
    ]


def _grows(measured: Measured, layer: str, claim: str) -> Finding:
    """Whether time grows as the operations of a layer do, at every width, both ways.

    An exponent that is too far off by no more than two of its standard errors does not refute it, nor do times of a
    busy machine.
    """
    parts, verdicts = [], []
    for passes, width in product(PASSES, measured.widths):
        own, expected = measured.added(layer, passes, width), measured.counted(layer, width)
        verdicts.append(own.agrees(expected, NEAR))
        parts.append(f"{own} measured, {expected:.2f} by operations (d = {width}, {passes})")
    held = jointly(verdicts)
    squares, lines = OPERATIONS[layer]
    terms = " + ".join(f"{n} {term}" for n, term in ((squares, "n² d"), (lines, "n d²")) if n)
    return Finding(
        claim,
        None if measured.busy and not held else held,
        f"{layer}, {terms} operations; exponents of n: {'; '.join(parts)}"
        f"{'' if held else f'; {NEAR:g} off still agrees'}{_busy(measured)}.",
    )


def _busy(measured: Measured) -> str:
    """What to say where a finding rests on times that are not to be trusted."""
    busy = f"; the machine was busy: one median in four is over {measured.noise:.1f} times the fastest of its rounds"
    return busy if measured.busy else ""


def _shorter(measured: Measured, passes: str) -> Finding:
    """Vaswani et al. 2017, section 4: a self-attention layer is faster than recurrence where n is smaller than d."""
    ratios = {(n, d): ratio for d in measured.widths for n, ratio in measured.ratios(LAYER, passes, d).items() if n < d}
    near = {place: ratio for place, ratio in ratios.items() if ratio >= 1 / ALIKE}
    held = either(not near, max(ratios.values()) > ALIKE)
    slowest = ", ".join(f"{ratio:.2f} times as long at n = {n}, d = {d}" for (n, d), ratio in near.items())
    where = ", ".join(f"{faster_where(measured, LAYER, passes, width)} (d = {width})" for width in measured.widths)
    return Finding(
        f"Self-attention, with its projections, is faster than an LSTM wherever n < d ({passes}).",
        None if measured.busy and not held else held,
        f"faster {where}; at n < d it takes {max(ratios.values()):.2f} times as long as the LSTM at most"
        f"{'' if held else f': {slowest}; within {ALIKE:g} cannot be told'}{_busy(measured)}.",
    )


def faster_where(measured: Measured, layer: str, passes: str, width: int) -> str:
    """The lengths at which a layer takes less time than recurrence, as ranges of those measured."""
    ratios = measured.ratios(layer, passes, width)
    if max(ratios.values()) < 1:
        return f"at every length up to {measured.lengths[-1]:,}"
    groups = groupby(measured.lengths, key=lambda length: ratios[length] < 1)
    return ", ".join(_range(list(lengths)) for faster, lengths in groups if faster) or "nowhere"


def _range(lengths: list[int]) -> str:
    return f"at n = {lengths[0]:,}" + (f" to {lengths[-1]:,}" if len(lengths) > 1 else "")


def _waits(found: Found) -> Finding:
    """Sequential steps: as many for every n in attention, one for each token in recurrence."""
    own, other, lengths = found["products"][LAYER], found["products"][LSTM], found["product_lengths"]
    counts = [", ".join(map(str, each)) for each in (own, other, lengths)]
    return Finding(
        "Self-attention needs O(1) sequential steps, recurrence O(n).",
        len(set(own)) == 1 and other == lengths,
        f"matrix products that wait for one another: {counts[0]} in self-attention and {counts[1]} in an LSTM, for n = "
        f"{counts[2]} (counted in the graph of the computation, not timed).",
    )
