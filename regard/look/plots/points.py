"""Maps of points: one large map with a legend of its groups, or a small one for each layer.

Few points have their names; of many, those that have room for one. A group has its number near its middle.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from regard.look.figures import LINES
from regard.look.plots.labels import Frame, Place, around, beside, extent, spread, together
from regard.look.plots.panel import GREY, LETTERS, Panel, names, shortened
from regard.look.view import Array, Sheet

SMALL, LARGE = 2.1, 5.8
"""Inches of a small map and of a large one."""
FLATTEST, TALLEST = 0.5, 0.85
"""The height of a large map by its width."""
BESIDE = 4
"""Small maps in a row."""
MARGIN = 0.08
"""Around the points, by the longer of their sides."""
FEW_POINTS = 30
"""Points of which each has a name."""
MOST_NAMES, TRIED = 24, 5
"""Names on a map of many, and for each of them so many points are tried."""
MOST_GROUPS = 24
"""Groups in a legend."""
LINE, LEGEND = 0.17, 3.0
"""Inches of a line of the legend, and of its names."""
NAME = 34
"""Letters of a name in the legend."""

Points = Float[np.ndarray, "N 2"]


def panel(sheet: Sheet, array: Array) -> Panel:
    """One large map, or small ones, four in a row, with the names of their points below."""
    count = array.values[..., 0, 0].numel()
    if count == 1:
        groups = _groups(sheet, array)
        tall = LARGE * _shape(array.values.double().reshape(-1, 2).numpy())
        listed = 0 if groups is None else LINE * (min(MOST_GROUPS, int(groups.values.max()) + 1) + 2)
        beside_it = 0.0 if groups is None else LEGEND if groups.names else 0.9
        return Panel(array, _large, LARGE + beside_it, max(tall, listed) + 0.4)
    width = max(4.2, SMALL * min(BESIDE, count) + 0.3)
    below = 0.11 * len(_below(sheet, array, width).splitlines())
    return Panel(array, _small, width, (SMALL + 0.15) * -(-count // BESIDE) + 0.4 + below)


def _shape(points: Points) -> float:
    """The height of a map by its width, as its points have it, within limits."""
    across, up = np.ptp(points, 0) + 2 * _room(points)
    return float(min(TALLEST, max(FLATTEST, up / across)))


def _room(points: Points) -> float:
    return float(MARGIN * (np.ptp(points, 0).max() or 1.0))


def _groups(sheet: Sheet, array: Array) -> Array | None:
    """The groups of the points, where they are in some."""
    return next((other for other in sheet.of(array.view) if other.nature == "label"), None)


def _large(part: Any, sheet: Sheet, array: Array) -> None:
    """Points where they lie, in the colours of their groups."""
    points = array.values.double().reshape(-1, 2).numpy()
    groups = _groups(sheet, array)
    labels = np.zeros(len(points), int) if groups is None else groups.values.numpy()
    axes = part.add_subplot()
    for label in np.unique(labels).tolist():
        _scatter(axes, points[labels == label], len(points), label, "" if groups is None else _entry(groups, label))
    frame, seen = _framed(axes, points, (72 * (LARGE - 0.15), 72 * (LARGE * _shape(points) - 0.05)))
    if groups is not None:
        _number(axes, frame, points, seen, labels)
        _legend(axes, groups)
    _name(axes, frame, points, seen, names(sheet, array.axes[-2], len(points)))


def _framed(axes: Any, points: Points, size: Place) -> tuple[Frame, Points]:
    """Equal scales, and room around the points; where these lie in a frame of so many points of length."""
    room, middle = _room(points), (points.min(0) + points.max(0)) / 2
    scale = float((np.array(size) / (np.ptp(points, 0) + 2 * room)).min())
    low, high = middle - np.array(size) / (2 * scale), middle + np.array(size) / (2 * scale)
    axes.set(xticks=[], yticks=[], aspect="equal", anchor="NW", xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    seen = (points - low) * scale
    return Frame(size, seen), seen


def _scatter(axes: Any, points: Points, count: int, label: int, entry: str = "") -> None:
    colour, marker = LINES[label % len(LINES)]
    size = 26 if count <= FEW_POINTS else max(3, min(16, 6000 / count))
    axes.scatter(*points.T, s=size, color=colour, marker=marker, linewidths=0, alpha=0.75, label=entry or None)


def _number(axes: Any, frame: Frame, points: Points, seen: Points, labels: Int[np.ndarray, " N"]) -> None:
    """The number of each group in its middle; beside it, with a line, where it would cover few points or another."""
    for label in np.unique(labels).tolist():
        colour, own = LINES[label % len(LINES)][0], labels == label
        size = (6.0 * len(str(label)) + 5, 12.0)
        many = int(own.sum()) > FEW_POINTS
        at = seen[own].mean(0)
        offset = frame.put((at[0], at[1]), size, around(), upon_points=many)
        offset = offset or frame.put((at[0], at[1]), size, around(), upon_points=True) or (0.0, 0.0)
        style = {"fontsize": 7, "ha": "center", "va": "center", "textcoords": "offset points", "zorder": 4}
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(str(label), points[own].mean(0), xytext=offset, bbox=box, arrowprops=line, **style)


def _entry(groups: Array, label: int) -> str:
    size = int((groups.values == label).sum())
    name = f"  {shortened(groups.names[label], NAME)}" if label < len(groups.names) else ""
    return f"{label} ({size:,}){name}"


def _legend(axes: Any, groups: Array) -> None:
    """The groups beside the map: their numbers, how many points they have, and one that stands for each."""
    handles, entries = axes.get_legend_handles_labels()
    left_out = len(entries) - MOST_GROUPS
    said = f"{groups.name} (size)" + (", and what is nearest to its centre" if groups.names else "")
    said += f"\n{left_out:,} more are not listed" if left_out > 0 else ""
    style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    legend = axes.legend(
        handles[:MOST_GROUPS], entries[:MOST_GROUPS], title=said, title_fontsize=7, alignment="left", **style
    )
    for handle in legend.legend_handles:
        handle.set_sizes([20])


def _name(axes: Any, frame: Frame, points: Points, seen: Points, labels: Sequence[str]) -> None:
    """Names beside their points, as many as have room, from all over the map."""
    named = 0
    for number in spread(seen, TRIED * MOST_NAMES):
        size, at = extent(labels[number]), seen[number]
        if (offset := frame.put((at[0], at[1]), size, beside(size))) is not None:
            _written(axes, labels[number], points[number], offset)
            named += 1
        if named == MOST_NAMES:
            return


def _written(axes: Any, name: str, point: Float[np.ndarray, " 2"], offset: Place) -> None:
    """A name with its middle at an offset from a point; what it is narrower than thought is left on its far side."""
    half, (across, up) = extent(name)[0] / 2, offset
    side = "left" if across > 0 else "right" if across < 0 else "center"
    near = across - np.sign(across) * half
    style = {"fontsize": 6, "ha": side, "va": "center", "textcoords": "offset points"}
    axes.annotate(name, point, xytext=(near, up), **style)


def _small(part: Any, sheet: Sheet, array: Array) -> None:
    """A map for each layer, with numbers for points, together where these are at one place; names stand below."""
    values = array.values.double().reshape(-1, *array.values.shape[-2:]).numpy()
    grid = part.subplots(-(-len(values) // BESIDE), min(BESIDE, len(values)), squeeze=False)
    groups = _groups(sheet, array)
    colours = np.zeros(values.shape[1], int) if groups is None else groups.values.numpy()
    for axes, points, where in zip(grid.flat, values, sheet.labels(array.axes[0], len(values)), strict=False):
        for label in np.unique(colours).tolist():
            _scatter(axes, points[colours == label], len(points), label)
        frame, seen = _framed(axes, points, (72 * (SMALL - 0.1), 72 * (SMALL - 0.1)))
        for some in together(seen) if len(points) <= FEW_POINTS else []:
            name = ", ".join(str(number + 1) for number in some)
            size, at = extent(name), seen[some[0]]
            offset = frame.put((at[0], at[1]), size, beside(size)) or next(beside(size))
            _written(axes, name, points[some[0]], offset)
        axes.set_title(f"{array.axes[0].name} {where}", fontsize=7)
    for axes in grid.flat[len(values) :]:
        axes.set_axis_off()
    below = _below(sheet, array, part.get_figure(root=True).get_figwidth())
    part.supxlabel(below, fontsize=6, x=0.01, ha="left", color=GREY)


def _below(sheet: Sheet, array: Array, width: float) -> str:
    """The numbers and names of few points, in lines of so many inches."""
    labels = _numbered(names(sheet, array.axes[-2], array.values.shape[-2]))
    return textwrap.fill("    ".join(labels), int(1.6 * LETTERS * width)) if len(labels) <= FEW_POINTS else ""


def _numbered(labels: Sequence[str]) -> list[str]:
    """Names behind their numbers, from 1, with which some begin already (look/senses.py)."""
    if all(label.split(" ")[0] == str(number) for number, label in enumerate(labels, 1)):
        return list(labels)
    return [f"{number} {label}".rstrip() for number, label in enumerate(labels, 1)]
