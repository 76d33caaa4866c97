"""The cost of a layer: self-attention ``O(n^2 d)`` in ``O(1)`` steps, recurrence ``O(n d^2)`` in ``O(n)`` steps.

Measures the seconds of one layer over n tokens, forward and forward + backward, at several widths d; the exponents of n
and d by least squares (layer_times.py); the number of sequential matrix multiplications. The claims (Vaswani et al.
2017, table 1) are in cost_claims.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

from regard.compare.charts import Chart, Series, plot_charts
from regard.compare.cost_claims import describe_faster_lengths, judge_claims
from regard.compare.experiment import ComparisonSettings, Experiment, ExperimentSummary, Measurements, ResultTable
from regard.compare.layer_times import ATTENTION_ONLY, ENCODER_LAYER, SELF_ATTENTION, LayerTimes
from regard.compare.layers import COMPLEXITY, LAYERS, count_sequential_matmuls
from regard.compare.timing import PASSES, TimingCase, time_cases
from regard.runs.device import select_device

CHAIN_LENGTHS = (4, 8, 16, 32)
"""Lengths at which sequential matrix multiplications are counted."""


class TimingSetup(NamedTuple):
    """Widths and lengths to time, and the time budget in seconds."""

    widths: tuple[int, ...]
    lengths: tuple[int, ...]
    seconds: float


SETUPS = {
    "quick": TimingSetup((64, 256), (16, 32, 64, 128, 256, 512, 1024, 2048), 18.0),
    "full": TimingSetup((64, 128, 256, 512), (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), 180.0),
}


def measure(settings: ComparisonSettings, _: Mapping[str, Measurements]) -> Measurements:
    """Time every layer, pass, width and length, and count sequential matrix multiplications."""
    setup = SETUPS[settings.pace]
    cases = [TimingCase(*each) for each in product(LAYERS, PASSES, setup.widths, setup.lengths)]
    times = time_cases(cases, setup.seconds, select_device(settings.device), settings.seed)
    return {
        "widths": list(setup.widths),
        "lengths": list(setup.lengths),
        "times": [{**case._asdict(), "seconds": seconds} for case, seconds in times.items()],
        "products": {layer: [count_sequential_matmuls(layer, length) for length in CHAIN_LENGTHS] for layer in LAYERS},
        "product_lengths": list(CHAIN_LENGTHS),
    }


def summarise(measurements: Measurements) -> ExperimentSummary:
    """Return tables and findings."""
    measured = LayerTimes(measurements)
    method = (
        f"One layer over one row of n tokens, n from {measured.lengths[0]} to {measured.lengths[-1]:,}, at widths "
        f"{', '.join(map(str, measured.widths))}; heads of 64. Medians of {measured.n_rounds} rounds, in each of which "
        f"every case is timed once, in random order; three of four medians are at most {measured.noise:.2f} "
        "times the fastest round. "
        "The exponent of n is the slope of a straight line through the logarithms, fitted to the longer half of the "
        "lengths: once to the whole time, once to the time above the minimum of the shorter half, because a call has a "
        "constant overhead. Beside them is the exponent that the number of operations gives. The LSTM is torch's own, "
        "fused."
    )
    return ExperimentSummary(
        method,
        judge_claims(measurements),
        [
            _length_exponents_table(measured),
            _faster_lengths_table(measured),
            _sequential_matmuls_table(measurements),
            _width_exponents_table(measured),
        ],
    )


def _length_exponents_table(layer_times: LayerTimes) -> ResultTable:
    rows = []
    for passes, width, layer in product(PASSES, layer_times.widths, LAYERS):
        ends = [_format_milliseconds(layer_times.median_times(layer, passes, width)[index]) for index in (0, -1)]
        slopes = [
            str(fit(layer, passes, width))
            for fit in (layer_times.fit_length_exponent, layer_times.fit_length_exponent_above_offset)
        ]
        rows.append(
            [
                passes,
                str(width),
                layer,
                COMPLEXITY[layer],
                *ends,
                *slopes,
                f"{layer_times.expected_exponent(layer, width):.2f}",
            ]
        )
    first, last = layer_times.lengths[0], layer_times.lengths[-1]
    columns = ["pass", "d", "layer", "theory", f"ms, n = {first}", f"n = {last:,}", "all", "added", "operations"]
    title = f"Growth of time with the length n: exponents over n = {layer_times.fitted_lengths[0]} to {last:,}"
    least = f"the minimum over n < {layer_times.fitted_lengths[0]}"
    note = f"all: for the whole time; added: for the time above {least}; operations: if only they took time."
    return ResultTable(title, columns, rows, note)


def _faster_lengths_table(layer_times: LayerTimes) -> ResultTable:
    layers = [ATTENTION_ONLY, SELF_ATTENTION, ENCODER_LAYER]
    rows = [
        [passes, str(width), *(describe_faster_lengths(layer_times, layer, passes, width) for layer in layers)]
        for passes, width in product(PASSES, layer_times.widths)
    ]
    return ResultTable(
        "Lengths at which attention is faster than an LSTM of the same width", ["pass", "d", *layers], rows
    )


def _sequential_matmuls_table(measurements: Measurements) -> ResultTable:
    rows = [[layer, *map(str, counts)] for layer, counts in measurements["products"].items()]
    columns = ["layer", *(f"n = {length}" for length in measurements["product_lengths"])]
    return ResultTable("Sequential matrix multiplications", columns, rows)


def _width_exponents_table(layer_times: LayerTimes) -> ResultTable:
    rows = [
        [layer, COMPLEXITY[layer], *(str(layer_times.fit_width_exponent(layer, passes)) for passes in PASSES)]
        for layer in LAYERS
    ]
    columns = ["layer", "theory", *(f"exponent, {passes}" for passes in PASSES)]
    return ResultTable(f"Growth of time with the width d, at n = {layer_times.lengths[-1]:,}", columns, rows)


def _format_milliseconds(seconds: float) -> str:
    """Format three significant digits, or all digits before the point."""
    return f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"


def plot(measurements: Measurements, path: Path) -> Path:
    """Plot milliseconds against length on logarithmic axes: a panel for each pass and width."""
    measured = LayerTimes(measurements)
    charts = [
        Chart(
            f"{passes}, d = {width}",
            {
                layer: Series(measured.lengths, [1000 * value for value in measured.median_times(layer, passes, width)])
                for layer in LAYERS
            },
            axis_scales=("log2", "log"),
        )
        for passes, width in product(PASSES, measured.widths)
    ]
    return plot_charts(charts, path, "tokens n", "milliseconds", columns=len(measured.widths))


EXPERIMENT = Experiment(
    title="The cost of a layer",
    claim="A layer of self-attention costs O(n² d) operations in O(1) sequential steps, a recurrent one O(n d²) in "
    "O(n); so attention is cheaper wherever sequences are shorter than the model is wide.",
    source="Vaswani et al. 2017, table 1",
    measure=measure,
    summarise=summarise,
    plot=plot,
)
