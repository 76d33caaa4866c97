"""The figures of a comparison: lines over plain or logarithmic axes, a panel beside another; needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from regard.look.render.figures import LINE_STYLES, AxisLimits, draw_panels, style_axes

PANEL_SIZE = 3.5, 2.7
"""Inches."""

DPI = 200
"""Points to an inch."""


class Series(NamedTuple):
    """Points, joined by a line; or only points where `joined` is False."""

    x: Sequence[float]
    y: Sequence[float]
    connected: bool = True


@dataclass(frozen=True)
class Chart:
    """Lines by name, over the same axes; `levels` are dotted lines across, `scales` may be "log" or "log2"."""

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
    """Draw charts in rows of so many; a name has the same colour and marker in all of them.

    Where axes are not `shared`, each chart has its own. `limits` are those of y. The file is written whole or not
    at all.
    """
    names = list(dict.fromkeys(name for chart in charts for name in chart.series))
    drawn = [partial(_plot_chart, chart=chart, names=names) for chart in charts]
    options: dict[str, Any] = {"limits": y_limits, "shared": share_axes, "dpi": DPI}
    return draw_panels(
        drawn, path, columns=columns, size=PANEL_SIZE, names=names, xlabel=xlabel, ylabel=ylabel, **options
    )


def _plot_chart(axes: Any, chart: Chart, names: Sequence[str]) -> None:
    for name, (x, y, joined) in chart.series.items():
        place = names.index(name)
        colour, marker = LINE_STYLES[place % len(LINE_STYLES)]
        line = "none" if not joined else "--" if name.startswith(("RNN", "recurrent", "LSTM")) else "-"
        size = 5.5 if joined else 8
        style = {"linestyle": line, "marker": marker, "markersize": size + 3 * (marker == "*")}
        axes.plot(x, y, color=colour, label=name, linewidth=1.6, markeredgecolor="white", markeredgewidth=0.4, **style)
    style_axes(axes, chart.title, chart.reference_levels)
    axes.xaxis.get_offset_text().set_fontsize(8)
    _set_scales(axes, chart.axis_scales)


def _set_scales(axes: Any, scales: tuple[str, str]) -> None:
    """Logarithmic axes: to base 10, with powers beside them, or to base 2, with plain numbers."""
    for scale, axis, change in zip(scales, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale), strict=True):
        if scale == "log2":
            change("log", base=2)
            axis.set_major_formatter("{x:,.0f}")
        elif scale == "log":
            change("log")
