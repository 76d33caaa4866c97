"""The cost of a layer: self-attention ``O(n^2 d)`` in ``O(1)`` steps, recurrence ``O(n d^2)`` in ``O(n)`` (SPEC 9.1).

Measured: seconds of one layer over n tokens, forward alone and with its backward pass, at several widths d; the
exponents of n and of d by least squares (measured.py); the products of matrices that must wait for one another.
What is claimed of these is in cost_claims.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

from regard.compare.charts import Chart, Line, draw_charts
from regard.compare.cost_claims import faster_where, findings
from regard.compare.layers import LAYERS, THEORY, sequential_products
from regard.compare.measured import ATTENTION, LAYER, WHOLE, Measured
from regard.compare.part import Found, Part, Setting, Shown, Table
from regard.compare.timing import PASSES, Case, timed
from regard.train.device import device_named

CHAINS = (4, 8, 16, 32)
"""Lengths at which sequential products are counted."""


class Size(NamedTuple):
    """What is timed, and for how many seconds."""

    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    seconds: float


SIZES = {
    "quick": Size((64, 256), (16, 32, 64, 128, 256, 512, 1024, 2048), 18.0),
    "full": Size((64, 128, 256, 512), (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 180.0),
}


def measure(setting: Setting, _: Mapping[str, Found]) -> Found:
    """Times of every layer, pass, width and length, and the chains of products."""
    size = SIZES[setting.pace]
    cases = [Case(*each) for each in product(LAYERS, PASSES, size.widths, size.lengths)]
    times = timed(cases, size.seconds, device_named(setting.device), setting.seed)
    return {
        "widths": list(size.widths),
        "lengths": list(size.lengths),
        "times": [{**case._asdict(), "seconds": found} for case, found in times.items()],
        "products": {layer: [sequential_products(layer, length) for length in CHAINS] for layer in LAYERS},
        "product_lengths": list(CHAINS),
    }


def show(found: Found) -> Shown:
    """Tables and findings."""
    measured = Measured(found)
    method = (
        f"One layer over one row of n tokens, n from {measured.lengths[0]} to {measured.lengths[-1]:,}, at widths "
        f"{', '.join(map(str, measured.widths))}; heads of 64. Medians of {measured.rounds} rounds, in each of which "
        f"every case is timed once, in random order; three of four medians are at most {measured.noise:.2f} "
        "times the fastest round. "
        "The exponent of n is the slope of a straight line through the logarithms, fitted to the longer half of the "
        "lengths: once of the whole time, once of what length adds to the least time of the shorter half, because a "
        "call costs something whatever its size. Beside it stands the exponent that operations alone would give. An "
        "LSTM is torch's own, fused."
    )
    return Shown(
        method, findings(found), [_exponents(measured), _faster(measured), _chains(found), _by_width(measured)]
    )


def _exponents(measured: Measured) -> Table:
    rows = []
    for passes, width, layer in product(PASSES, measured.widths, LAYERS):
        ends = [_milliseconds(measured.curve(layer, passes, width)[place]) for place in (0, -1)]
        slopes = [str(found(layer, passes, width)) for found in (measured.growth, measured.added)]
        rows.append([passes, str(width), layer, THEORY[layer], *ends, *slopes, f"{measured.counted(layer, width):.2f}"])
    first, last = measured.lengths[0], measured.lengths[-1]
    columns = ["pass", "d", "layer", "theory", f"ms, n = {first}", f"n = {last:,}", "all", "added", "operations"]
    title = f"How time grows with the length n: exponents over n = {measured.longer[0]} to {last:,}"
    least = f"the least of n < {measured.longer[0]}"
    note = f"all: of the whole time; added: of the time above {least}; operations: if they alone took time."
    return Table(title, columns, rows, note)


def _faster(measured: Measured) -> Table:
    layers = [ATTENTION, LAYER, WHOLE]
    rows = [
        [passes, str(width), *(faster_where(measured, layer, passes, width) for layer in layers)]
        for passes, width in product(PASSES, measured.widths)
    ]
    return Table("Where attention is faster than an LSTM of the same width", ["pass", "d", *layers], rows)


def _chains(found: Found) -> Table:
    rows = [[layer, *map(str, counts)] for layer, counts in found["products"].items()]
    columns = ["layer", *(f"n = {length}" for length in found["product_lengths"])]
    return Table("Matrix products that wait for one another", columns, rows)


def _by_width(measured: Measured) -> Table:
    rows = [[layer, THEORY[layer], *(str(measured.across(layer, passes)) for passes in PASSES)] for layer in LAYERS]
    columns = ["layer", "theory", *(f"exponent, {passes}" for passes in PASSES)]
    return Table(f"How time grows with the width d, at n = {measured.lengths[-1]:,}", columns, rows)


def _milliseconds(seconds: float) -> str:
    """Three figures, and all of those before the point."""
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


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
        for passes, width in product(PASSES, measured.widths)
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
