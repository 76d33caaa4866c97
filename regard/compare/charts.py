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
    """Points, connected by a line unless `connected` is False."""

    x: Sequence[float]
    y: Sequence[float]
    connected: bool = True


@dataclass(frozen=True)
class Chart:
    """Series by name; `reference_levels` are dotted horizontal lines, scales may be "log" or "log2"."""

    title: str
    series: Mapping[str, Series]
    reference_levels: Mapping[str, float] = field(default_factory=dict)
    axis_scales: tuple[str, str] = ("linear", "linear")


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
    for name, (x, y, connected) in chart.series.items():
        colour, marker = LINE_STYLES[names.index(name) % len(LINE_STYLES)]
        line = "none" if not connected else "--" if name.startswith(("RNN", "recurrent", "LSTM")) else "-"
        size = 5.5 if connected else 8
        style = {"linestyle": line, "marker": marker, "markersize": size + 3 * (marker == "*")}
        axes.plot(x, y, color=colour, label=name, linewidth=1.6, markeredgecolor="white", markeredgewidth=0.4, **style)
    style_axes(axes, chart.title, chart.reference_levels)
    axes.xaxis.get_offset_text().set_fontsize(8)
    _set_scales(axes, chart.axis_scales)


def _set_scales(axes: Any, scales: tuple[str, str]) -> None:
    """Make axes logarithmic: "log" to base 10, labelled with powers, "log2" to base 2, labelled with numbers."""
    for scale, axis, change in zip(scales, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale), strict=True):
        if scale == "log2":
            change("log", base=2)
            axis.set_major_formatter("{x:,.0f}")
        elif scale == "log":
            change("log")
