"""Figures from tensors alone; they need the extra `plot`.

The suffix of the path sets the format: .png, .svg or .pdf. Colours are distinguishable for colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.disk import write_atomically
from regard.errors import MissingExtra

P = ParamSpec("P")
R = TypeVar("R")

_drawing_lock = Lock()
"""Held while a figure is drawn: matplotlib's settings, and Python's filters of warnings, belong to the process."""


def draw_alone(draw: Callable[P, R]) -> Callable[P, R]:
    """Return a function that draws one figure at a time, whatever the number of threads that call it."""

    @wraps(draw)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _drawing_lock:
            return draw(*args, **kwargs)

    return alone


@draw_alone
def draw_heat_map(
    weights: Float[Tensor, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    path: Path,
    label: str = "attention",
) -> Path:
    """Draw attention weights between two texts as a heat map; an empty text gives an empty map."""
    figure = new_figure(max(4.5, 2.2 + 0.5 * len(columns)), 2.2 + 0.42 * len(rows))
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy() if weights.numel() else np.zeros((1, 1)), cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(columns)), escape_math(columns), rotation=50, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), escape_math(rows))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.suptitle(*escape_math([title]), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    return save_figure(figure, path, dpi=150)


@draw_alone
def draw_position_map(table: Float[Tensor | np.ndarray, "T D"], path: str | Path, title: str = "") -> Path:
    """Draw position vectors (Vaswani et al. 2017, section 3.5): a row per position, blue positive, orange negative."""
    values = torch.as_tensor(table).detach().cpu().float().numpy()
    n_positions, d_model = values.shape
    limit = float(np.abs(values).max(initial=0.0)) or 1.0
    figure = new_figure(6.5, 3.4)
    axes = figure.add_subplot(xlabel="dimension", ylabel="position")
    image = axes.imshow(
        values, cmap=diverging_colormap(), vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes.locator_params(integer=True)
    axes.set_title(title or f"position vectors: {n_positions} positions, {d_model} dimensions", fontsize=9)
    figure.colorbar(image, ax=axes, label="value (blue above zero, orange below)")
    return save_figure(figure, Path(path))


AxisLimits = tuple[float, float | None]
"""The lower and upper end of an axis; None for the extent of the data."""


class Curve(NamedTuple):
    """A line over x with an optional band."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class CurvePanel:
    """Named curves over the same axes, with dotted horizontal and dashed vertical lines."""

    title: str
    curves: Mapping[str, Curve]
    horizontal_lines: Mapping[str, float] = field(default_factory=dict)
    vertical_lines: Mapping[str, float] = field(default_factory=dict)


def draw_curves(
    panels: Sequence[CurvePanel],
    path: str | Path,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    limits: AxisLimits | None = None,
) -> Path:
    """Draw panels of curves with bands; a name has the same colour and marker in all panels.

    The file is written whole or not at all. `limits` are those of y.
    """
    n_columns = len(panels) if len(panels) <= 3 else 2
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    drawn = [partial(_draw_panel, panel=panel, names=names) for panel in panels]
    size = max(4.2 / n_columns, 3.2), 2.5
    labels: dict[str, Any] = {"xlabel": xlabel, "ylabel": ylabel, "title": title}
    return draw_panels(drawn, Path(path), columns=n_columns, size=size, names=names, limits=limits, **labels)


@draw_alone
def draw_panels(
    draw_functions: Sequence[Callable[[Any], object]],
    path: Path,
    *,
    columns: int,
    size: tuple[float, float],
    names: Sequence[str],
    xlabel: str,
    ylabel: str,
    title: str = "",
    limits: AxisLimits | None = None,
    shared: bool = True,
    dpi: int = 300,
) -> Path:
    """Draw panels of a size in inches, in rows, with one legend below in the order of `names`.

    Where axes are not `shared`, each panel has its own. `limits` are those of y. The file is written whole or not
    at all.
    """
    n_rows = -(-len(draw_functions) // columns)
    figure = new_figure(size[0] * columns, size[1] * n_rows + 0.6)
    grid = figure.subplots(n_rows, columns, sharex=shared, sharey=shared, squeeze=False)
    for axes, draw in zip(grid.flat, draw_functions, strict=False):
        draw(axes)
    if limits is not None:  # after drawing: limits end the autoscaling of shared axes
        for axes in grid.flat[: len(draw_functions)]:
            axes.set_ylim(*limits)
    for axes in grid.flat[len(draw_functions) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(xlabel, fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel, fontsize=9)
    _legend_below(figure, names)
    if title:
        figure.suptitle(*escape_math([title]), fontsize=9)
    return save_figure(figure, path, dpi=dpi)


def _legend_below(figure: Any, names: Sequence[str]) -> None:
    """Draw one legend below all panels: `names` first, then horizontal and vertical lines."""
    lines = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    entries = {name: lines[name] for name in dict.fromkeys([*names, *lines]) if name in lines}
    beside = max(1, int(figure.get_figwidth() / (0.8 + 0.075 * max(map(len, entries), default=0))))
    n_lines = math.ceil(max(1, len(entries)) / beside)
    style = {"loc": "outside lower center", "frameon": False, "fontsize": 8, "handlelength": 3}
    figure.legend(entries.values(), escape_math(entries), ncols=max(1, math.ceil(len(entries) / n_lines)), **style)


def style_axes(axes: Any, title: str, horizontal_lines: Mapping[str, float]) -> None:
    """Style axes: a title, dotted horizontal lines, a grid, and no frame."""
    for name, level in horizontal_lines.items():
        axes.axhline(level, color="#666666", linestyle=":", linewidth=1, label=name)
    axes.set_title(*escape_math([title]), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


LINE_STYLES = [
    *(("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D")),
    *(("#E69F00", "v"), ("#56B4E9", "P"), ("#000000", "X"), ("#999999", "*")),
    *(("#8C564B", "h"), ("#B5BD00", "<"), ("#6A3D9A", ">"), ("#00504B", "p")),
]
"""Colours for colour-blind readers (Okabe and Ito 2008) and four more for many lines, each with
a marker for greyscale print."""

POSITIVE_COLOUR, NEGATIVE_COLOUR = LINE_STYLES[0][0], LINE_STYLES[1][0]
"""Blue and orange: the colours of positive and negative values, in figures and on pages."""


def diverging_colormap() -> Any:
    """Return a colour map for signed values: orange below zero, white at zero, blue above."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "signed", ["#6B2F00", NEGATIVE_COLOUR, "#FFFFFF", POSITIVE_COLOUR, "#003459"]
    )


def _draw_panel(axes: Any, panel: CurvePanel, names: Sequence[str]) -> None:
    for name, (x, y, low, high) in panel.curves.items():
        index = names.index(name)
        colour, marker = LINE_STYLES[index % len(LINE_STYLES)]
        size = max(3.5, 8 - 1.5 * index)  # coinciding markers stay visible, one inside another
        axes.plot(x, y, color=colour, marker=marker, markersize=size, markeredgecolor="white", label=name)
        if len(low):
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    style_axes(axes, panel.title, panel.horizontal_lines)
    for name, mark in panel.vertical_lines.items():
        axes.axvline(mark, color="#666666", linestyle="--", linewidth=1, label=name)
    axes.xaxis.get_major_locator().set_params(integer=True)


def escape_math(texts: Iterable[str]) -> list[str]:
    """Escape dollar signs, between which matplotlib would read mathematics."""
    return [text.replace("$", r"\$") for text in texts]


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a figure", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, *, dpi: int = 300) -> Path:
    """Write a figure, whole or not at all; the suffix of the path sets the format."""
    form = path.suffix.removeprefix(".")
    write_atomically(path, lambda temporary_path: figure.savefig(temporary_path, format=form, dpi=dpi))
    return path
