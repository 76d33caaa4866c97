"""The cost of a layer: self-attention ``O(n^2 d)`` in ``O(1)`` steps, recurrence ``O(n d^2)`` in ``O(n)`` (SPEC 9.1).

Measured: seconds of one layer over n tokens, forward alone and with its backward pass, at several widths d; the
exponents of n and of d by least squares; the products of matrices that must wait for one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from regard.compare.charts import Chart, Line, draw_charts
from regard.compare.fits import Slope, crossing, halves, slope
from regard.compare.layers import LAYERS, OPERATIONS, THEORY, operations, sequential_products
from regard.compare.part import Finding, Found, Part, Setting, Shown, Table
from regard.compare.timing import PASSES, Case, timed
from regard.train.device import device_named

ATTENTION, LAYER, WHOLE, LSTM = LAYERS

NEAR = 0.25
"""How far a measured exponent may be from that of the theory and still agree with it."""

BUSY = 1.5
"""Times the fastest round that the median may take in three of four cases; beyond that, something else ran too."""

CHAINS = (4, 8, 16, 32)
"""Lengths at which sequential products are counted."""


class Size(NamedTuple):
    """What is timed, and for how many seconds."""

    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    seconds: float


SIZES = {
    "quick": Size((64, 256), (16, 32, 64, 128, 256, 512, 1024), 12.0),
    "full": Size((64, 128, 256, 512), (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 180.0),
}


def measure(setting: Setting, _: Mapping[str, Found]) -> Found:
    """Times of every layer, pass, width and length, and the chains of products."""
    size = SIZES[setting.pace]
    cases = [Case(*each) for each in _product(list(LAYERS), PASSES, size.widths, size.lengths)]
    times = timed(cases, size.seconds, device_named(setting.device), setting.seed)
    return {
        "widths": list(size.widths),
        "lengths": list(size.lengths),
        "times": [{**case._asdict(), "seconds": found} for case, found in times.items()],
        "products": {layer: [sequential_products(layer, length) for length in CHAINS] for layer in LAYERS},
        "product_lengths": list(CHAINS),
    }


def _product(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination, the first axis slowest."""
    found: list[tuple[Any, ...]] = [()]
    for axis in axes:
        found = [(*before, value) for before in found for value in axis]
    return found


class Measured:
    """The medians of all times, and what follows from them."""

    def __init__(self, found: Found) -> None:
        self.widths: list[int] = found["widths"]
        self.lengths: list[int] = found["lengths"]
        self.rounds = min(len(each["seconds"]) for each in found["times"])
        self.medians = {
            Case(each["layer"], each["passes"], each["width"], each["length"]): median(each["seconds"])
            for each in found["times"]
        }

        slower = [median(each["seconds"]) / max(min(each["seconds"]), 1e-12) for each in found["times"]]
        self.noise = float(quantiles(slower, n=4)[2])

    @property
    def busy(self) -> bool:
        """Whether these times are not to be trusted."""
        return self.noise > BUSY

    def curve(self, layer: str, passes: str, width: int) -> list[float]:
        """Seconds at every length."""
        return [self.medians[Case(layer, passes, width, length)] for length in self.lengths]

    def growth(self, layer: str, passes: str, width: int) -> tuple[Slope, Slope]:
        """The exponents of n, over the shorter and over the longer half of the lengths."""
        return halves(self.lengths, self.curve(layer, passes, width))

    def counted(self, layer: str, width: int) -> tuple[Slope, Slope]:
        """The exponents that the operations alone would give over the same lengths."""
        return halves(self.lengths, [operations(layer, length, width) for length in self.lengths])

    def across(self, layer: str, passes: str) -> Slope:
        """The exponent of d, at the longest length."""
        longest = self.lengths[-1]
        return slope(self.widths, [self.medians[Case(layer, passes, width, longest)] for width in self.widths])

    def faster_until(self, layer: str, passes: str, width: int) -> float | None:
        """The length at which a layer has become slower than recurrence; None where it is not within those measured."""
        return crossing(self.lengths, self.curve(layer, passes, width), self.curve(LSTM, passes, width))


def show(found: Found) -> Shown:
    """Tables and findings."""
    measured = Measured(found)
    method = (
        f"One layer over one row of n tokens, n from {measured.lengths[0]} to {measured.lengths[-1]:,}, at widths "
        f"{', '.join(map(str, measured.widths))}; heads of 64. Medians of {measured.rounds} rounds, in each of which "
        f"every case is timed once, in random order; three of four medians are at most {measured.noise:.2f} "
        "times the fastest round. "
        "The exponent of n is the slope of a straight line through the logarithms, fitted to the shorter and to the "
        "longer half of the lengths by themselves, because what a call costs whatever its size flattens the left of "
        "every curve. Beside it stands the exponent that the operations alone would give over the same lengths. An "
        "LSTM is torch's own, fused."
    )
    return Shown(
        method, findings(found), [_exponents(measured), _faster(measured), _chains(found), _by_width(measured)]
    )


def findings(found: Found) -> list[Finding]:
    """Which of the claims held in these times."""
    measured = Measured(found)
    return [
        _grows(measured, ATTENTION, 2.0, "The scores and sums of self-attention grow with the square of n."),
        _grows(measured, LSTM, 1.0, "Recurrence grows in proportion to n."),
        _whole(measured),
        *(_shorter(measured, passes) for passes in PASSES),
        _waits(found),
    ]


def _grows(measured: Measured, layer: str, expected: float, claim: str) -> Finding:
    """Whether the exponents over the longer half are those of the theory, at every width, both ways.

    One that is off by less than two of its standard errors does not refute it.
    """
    slopes = {
        (passes, width): measured.growth(layer, passes, width)[1] for passes in PASSES for width in measured.widths
    }
    off = {at: found for at, found in slopes.items() if abs(found.exponent - expected) > NEAR}
    low, high = (pick(slopes.values(), key=lambda each: each.exponent).exponent for pick in (min, max))
    said = f"{layer}: exponents from {low:.2f} to {high:.2f} over the longer half of the lengths, expected {expected:g}"
    if not off:
        return Finding(claim, True, f"{said}.")
    clear = [found for found in off.values() if not abs(found.exponent - expected) <= 2 * found.error]
    where = ", ".join(f"{found.exponent:.2f} at d = {width} ({passes})" for (passes, width), found in off.items())
    lower = all(found.exponent < expected for found in off.values())
    why = (
        "less than the theory, as where the fixed cost of a call still counts or the machine is not yet full"
        if lower
        else "more than the theory somewhere, as where texts no longer fit the caches or other work gets in between"
    )
    held = None if measured.busy or not clear else False
    return Finding(claim, held, f"{said}; further off than {NEAR:g}: {where}; {why}{_busy(measured)}.")


def _busy(measured: Measured) -> str:
    """What to say where a finding would rest on times that are not to be trusted."""
    return (
        f" (the machine was busy: one median of four is {measured.noise:.1f} times the fastest or more)"
        if measured.busy
        else ""
    )


def _whole(measured: Measured) -> Finding:
    """The exponent of a whole layer lies between 1 and 2, where its operations put it."""
    squares, lines = OPERATIONS[WHOLE]
    parts, held = [], True
    for width in measured.widths:
        real, expected = measured.growth(WHOLE, PASSES[0], width)[1], measured.counted(WHOLE, width)[1]
        held &= abs(real.exponent - expected.exponent) <= NEAR
        parts.append(f"d = {width}: {real.exponent:.2f} measured, {expected.exponent:.2f} by its operations")
    return Finding(
        "A whole encoder layer grows with an exponent between 1 and 2, as its operations do.",
        None if measured.busy and not held else held,
        f"{squares} n² d + {lines} n d² operations: projections and feed-forward are n d² too, so the square only "
        f"weighs more beyond n = {lines // squares} d. Forward, longer half: {'; '.join(parts)}"
        f"{'' if held else _busy(measured)}.",
    )


def _shorter(measured: Measured, passes: str) -> Finding:
    """Vaswani et al. 2017, section 4: a self-attention layer is faster than recurrence where n is smaller than d."""
    slower, parts = [], []
    for width in measured.widths:
        both = zip(*(measured.curve(layer, passes, width) for layer in (LAYER, LSTM)), strict=True)
        behind = [own >= recurrent for own, recurrent in both]
        slower += [
            f"n = {n}, d = {width}" for n, late in zip(measured.lengths, behind, strict=True) if late and n < width
        ]
        parts.append(f"d = {width}: {_until(measured, LAYER, passes, width)}")
    short = f"; slower at {', '.join(slower)}" if slower else ""
    return Finding(
        f"Self-attention, with its projections, is faster than an LSTM wherever n < d ({passes}).",
        True if not slower else None if measured.busy else False,
        f"faster {'; '.join(parts)}{short}{_busy(measured) if slower else ''}.",
    )


def _until(measured: Measured, layer: str, passes: str, width: int) -> str:
    own, other = (measured.curve(each, passes, width) for each in (layer, LSTM))
    if all(a < b for a, b in zip(own, other, strict=True)):
        return f"at every length up to {measured.lengths[-1]:,}"
    crossed = measured.faster_until(layer, passes, width)
    return f"up to n = {crossed:,.0f}" if crossed else "nowhere"


def _waits(found: Found) -> Finding:
    """Sequential steps: as many for every n in attention, one for each token in recurrence."""
    own, other, lengths = found["products"][LAYER], found["products"][LSTM], found["product_lengths"]
    constant, linear = len(set(own)) == 1, other == lengths
    counts = f"{', '.join(map(str, other))} for n = {', '.join(map(str, lengths))}"
    return Finding(
        "Self-attention needs O(1) sequential steps, recurrence O(n).",
        constant and linear,
        f"matrix products that wait for one another: {own[0]} in self-attention"
        f"{' whatever n is' if constant else f' at first, then {own[1:]}'}, {counts} in an LSTM (counted in the graph "
        "of the computation, not timed).",
    )


def _exponents(measured: Measured) -> Table:
    rows = []
    for passes, width, layer in _product(PASSES, measured.widths, list(LAYERS)):
        curve, (short, long) = measured.curve(layer, passes, width), measured.growth(layer, passes, width)
        by_count = measured.counted(layer, width)
        ends = [_milliseconds(curve[0]), _milliseconds(curve[-1])]
        expected = [f"{each.exponent:.2f}" for each in by_count] if passes == PASSES[0] else ["", ""]
        rows.append([passes, str(width), layer, THEORY[layer], *ends, str(short), expected[0], str(long), expected[1]])
    first, last = measured.lengths[0], measured.lengths[-1]
    middle = measured.lengths[len(measured.lengths) // 2]
    columns = ["pass", "d", "layer", "theory", f"ms, n = {first}", f"n = {last:,}"]
    columns += [f"n ≤ {middle}", "counted", f"n ≥ {middle}", "counted"]
    title = "How time grows with the length n: exponents over both halves of the lengths, measured and counted"
    return Table(title, columns, rows)


def _faster(measured: Measured) -> Table:
    rows = [
        [passes, str(width), *(_until(measured, layer, passes, width) for layer in (ATTENTION, LAYER, WHOLE))]
        for passes, width in _product(PASSES, measured.widths)
    ]
    return Table(
        "Where attention is faster than an LSTM of the same width", ["pass", "d", ATTENTION, LAYER, WHOLE], rows
    )


def _chains(found: Found) -> Table:
    rows = [[layer, *map(str, counts)] for layer, counts in found["products"].items()]
    columns = ["layer", *(f"n = {length}" for length in found["product_lengths"])]
    return Table("Matrix products that wait for one another", columns, rows)


def _by_width(measured: Measured) -> Table:
    rows = [[layer, THEORY[layer], *(str(measured.across(layer, passes)) for passes in PASSES)] for layer in LAYERS]
    columns = ["layer", "theory", *(f"exponent, {passes}" for passes in PASSES)]
    return Table(f"How time grows with the width d, at n = {measured.lengths[-1]:,}", columns, rows)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def draw(found: Found, path: Path) -> Path:
    """Seconds against length, both on scales of logarithms: a panel for each pass and width."""
    measured = Measured(found)
    charts = [
        Chart(
            f"{passes}, d = {width}",
            {
                layer: Line(measured.lengths, [1000 * value for value in measured.curve(layer, passes, width)])
                for layer in LAYERS
            },
            scales=("log2", "log"),
        )
        for passes in PASSES
        for width in measured.widths
    ]
    return draw_charts(charts, path, "tokens n", "milliseconds", columns=len(measured.widths))


PART = Part(
    title="The cost of a layer",
    claim="A layer of self-attention costs O(n² d) operations in O(1) sequential steps, a recurrent one O(n d²) in "
    "O(n); so attention is the cheaper one wherever texts are shorter than vectors are wide.",
    source="Vaswani et al. 2017, table 1",
    measure=measure,
    show=show,
    draw=draw,
)
