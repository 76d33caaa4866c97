"""The figures of a comparison: lines over plain or logarithmic axes, a panel beside another; needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from regard.disk import write_aside
from regard.look.figures import LINES, new_figure, plain

COLOURS = [*LINES, ("#8C564B", "*"), ("#7F7F7F", "h"), ("#BCBD22", "<")]
"""Those of all figures, and three more where there are many lines."""

PANEL = 3.5, 2.7
"""Inches."""

DPI = 200
"""Points to an inch."""


class Line(NamedTuple):
    """Points, joined by a line; or only points where `joined` is False."""

    x: Sequence[float]
    y: Sequence[float]
    joined: bool = True


@dataclass(frozen=True)
class Chart:
    """Lines by name, over the same axes; `levels` are dotted lines across, `scales` may be "log" or "log2"."""

    title: str
    lines: Mapping[str, Line]
    levels: Mapping[str, float] = field(default_factory=dict)
    scales: tuple[str, str] = ("linear", "linear")


def draw_charts(
    charts: Sequence[Chart],
    path: Path,
    xlabel: str,
    ylabel: str,
    *,
    columns: int,
    limits: tuple[float, float] | None = None,
    shared: bool = True,
) -> Path:
    """Draw charts in rows of so many; a name has the same colour and marker in all of them.

    Where axes are not `shared`, each chart has its own. The file is written whole or not at all.
    """
    n_rows = -(-len(charts) // columns)
    figure = new_figure(PANEL[0] * columns, PANEL[1] * n_rows + 0.6)
    grid = figure.subplots(n_rows, columns, sharex=shared, sharey=shared, squeeze=False)
    names = list(dict.fromkeys(name for chart in charts for name in chart.lines))
    for axes, chart in zip(grid.flat, charts, strict=False):
        _draw(axes, chart, names)
        _scale(axes, chart.scales)
    for axes in grid.flat[len(charts) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(xlabel, fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel, fontsize=9)
    if limits is not None:
        for axes in grid.flat:
            axes.set_ylim(*limits)
    labelled = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    entries = {name: labelled[name] for name in [*names, *(name for name in labelled if name not in names)]}
    beside = max(1, int(figure.get_figwidth() / (0.8 + 0.075 * max(map(len, entries)))))
    style = {"loc": "outside lower center", "frameon": False, "fontsize": 8, "handlelength": 3}
    figure.legend(entries.values(), entries, ncols=beside, **style)
    write_aside(path, lambda aside: figure.savefig(aside, format=path.suffix.removeprefix("."), dpi=DPI))
    return path


def _draw(axes: Any, chart: Chart, names: Sequence[str]) -> None:
    for name, (x, y, joined) in chart.lines.items():
        place = names.index(name)
        colour, marker = COLOURS[place % len(COLOURS)]
        line = "none" if not joined else "--" if name.startswith(("RNN", "recurrent", "LSTM")) else "-"
        size = 5.5 if joined else 8
        style = {"linestyle": line, "marker": marker, "markersize": size + 3 * (marker == "*")}
        axes.plot(x, y, color=colour, label=name, linewidth=1.6, markeredgecolor="white", markeredgewidth=0.4, **style)
    for name, level in chart.levels.items():
        axes.axhline(level, color="#666666", linestyle=":", linewidth=1, label=name)
    axes.set_title(*plain([chart.title]), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.xaxis.get_offset_text().set_fontsize(8)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _scale(axes: Any, scales: tuple[str, str]) -> None:
    """Logarithmic axes: to base 10, with powers beside them, or to base 2, with plain numbers."""
    for scale, axis, change in zip(scales, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale), strict=True):
        if scale == "log2":
            change("log", base=2)
            axis.set_major_formatter("{x:,.0f}")
        elif scale == "log":
            change("log")
