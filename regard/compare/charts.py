"""Figures of a comparison: panels of lines over linear or logarithmic axes; needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from regard.look.render.figures import LINE_STYLES, AxisLimits, draw_panels, style_axes

PANEL_SIZE = 3.5, 2.7
"""Width and height in inches."""

DPI = 200
"""Dots per inch."""


class Series(NamedTuple):
    """Points, connected by a line unless `connected` is False; `low` and `high` are the ends of their intervals."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    connected: bool = True
    markers: bool = True


@dataclass(frozen=True)
class Chart:
    """Series by name; `reference_levels` are dotted horizontal lines, scales may be "log" or "log2".

    With `x_names`, x counts categories from 0, and these are their names.
    """

    title: str
    series: Mapping[str, Series]
    reference_levels: Mapping[str, float] = field(default_factory=dict)
    axis_scales: tuple[str, str] = ("linear", "linear")
    x_names: Sequence[str] = ()


def plot_charts(
    charts: Sequence[Chart],
    path: Path,
    xlabel: str,
    ylabel: str,
    *,
    columns: int,
    y_limits: AxisLimits | None = None,
    share_axes: bool = True,
) -> Path:
    """Plot charts in a grid of `columns` columns; a name has the same colour and marker in all of them.

    Each chart has its own axes unless `share_axes`. The file is written atomically.
    """
    names = list(dict.fromkeys(name for chart in charts for name in chart.series))
    panels = [partial(_plot_chart, chart=chart, names=names) for chart in charts]
    options: dict[str, Any] = {"limits": y_limits, "shared": share_axes, "dpi": DPI}
    return draw_panels(
        panels, path, columns=columns, size=PANEL_SIZE, names=names, xlabel=xlabel, ylabel=ylabel, **options
    )


def _plot_chart(axes: Any, chart: Chart, names: Sequence[str]) -> None:
    for name, series in chart.series.items():
        colour, marker = LINE_STYLES[names.index(name) % len(LINE_STYLES)]
        axes.plot(series.x, series.y, color=colour, label=name, **_line_style(name, series, marker))
        if series.low and series.connected:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.2, linewidth=0)
        elif series.low:
            axes.vlines(series.x, series.low, series.high, color=colour, linewidth=1.2)
    style_axes(axes, chart.title, chart.reference_levels)
    axes.tick_params(which="minor", labelsize=7)
    axes.xaxis.get_offset_text().set_fontsize(8)
    _set_scales(axes, chart.axis_scales)
    if chart.x_names:
        axes.set_xticks(range(len(chart.x_names)), chart.x_names, fontsize=7)


def _line_style(name: str, series: Series, marker: str) -> dict[str, Any]:
    """Return the style of a line and its markers: recurrent models are dashed."""
    recurrent = name.startswith(("RNN", "recurrent", "LSTM", "GRU"))
    line = "none" if not series.connected else "--" if recurrent else "-"
    size = (5.5 if series.connected else 8) + 3 * (marker == "*")
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
    return {"linestyle": line, "marker": marker if series.markers else "", "markersize": size, "linewidth": 1.6, **edge}


def _set_scales(axes: Any, scales: tuple[str, str]) -> None:
    """Make axes logarithmic: "log" to base 10, labelled with powers, "log2" to base 2, labelled with numbers."""
    for scale, axis, change in zip(scales, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale), strict=True):
        if scale == "log2":
            change("log", base=2)
            axis.set_major_formatter("{x:,.0f}")
        elif scale == "log":
            change("log")
