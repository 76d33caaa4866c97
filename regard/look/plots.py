"""A sheet as a figure for paper or screen: one view, a row of panels for each kind. Needs the extra `plot`.

Arrays over two texts are maps (small multiples by layer and head, one large map where one is chosen), numbers of
heads a map of heads, what changes with the layer a curve. Standard errors are drawn where they belong to bars only.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from regard.disk import write_aside
from regard.errors import InputError
from regard.look.figures import LINES, new_figure
from regard.look.view import Array, Axis, Sheet
from regard.look.views import title
from regard.progress import warn

WIDEST = 11.0
"""Inches of panels beside each other; one alone may be wider."""
NAMED = 100
"""Tokens along an axis that have room for a name each."""
LONGEST = 24
"""Letters of a name that are written."""
LETTERS = 14
"""Letters of a title on an inch."""
TILE = 1.2
"""Inches of a small map."""
FEW_TOKENS, ROOM = 24, 0.1
"""Tokens of a small map that have room for a name each, and inches for each of these."""
PLANE = 2.1
"""Inches of a small map of points."""
FEW_POINTS = 30
"""Points of a map that have room for a name each."""
TICKS = 13
"""Layers that are named along an axis."""
GREY = "#666666"

FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Segoe UI Emoji", "Noto Emoji"),
]
"""For letters that matplotlib's own font does not have, where one of these is installed."""

Draw = Callable[[Any, Sheet, Array], None]


class Panel(NamedTuple):
    """An array, how to draw it, and the size of that in inches."""

    array: Array
    draw: Draw
    width: float
    height: float


def plot(sheet: Sheet, path: Path) -> Path:
    """Draw the view of a sheet; the suffix says the form: .png, .svg or .pdf."""
    views = list(dict.fromkeys(array.view for array in sheet.arrays))
    if len(views) > 1:
        raise InputError(one_view(path, views))
    rows = _rows([panel for array in sheet.arrays if (panel := _panel(sheet, array)) is not None])
    widths, heights = [sum(panel.width for panel in row) for row in rows], [max(p.height for p in row) for row in rows]
    figure = new_figure(max(widths), sum(heights))
    with _styled():
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, row, width in zip(parts, rows, widths, strict=True):
            rest = max(widths) - width + 0.01
            cells = part.subfigures(1, len(row) + 1, width_ratios=[*(panel.width for panel in row), rest])
            for cell, panel in zip(cells, row, strict=False):
                cell.suptitle(textwrap.fill(_title(panel.array), int(LETTERS * panel.width)), fontsize=8)
                panel.draw(cell, sheet, panel.array)
        write_aside(path, lambda aside: figure.savefig(aside, format=path.suffix.removeprefix("."), dpi=300))
    return path


def one_view(path: Path, views: Sequence[str]) -> str:
    """What to say where several views are to be drawn."""
    return f"{path}: a figure shows one view; choose one of: {', '.join(views)}, or write {path.stem}.html"


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels of one kind stand beside each other, as far as there is room."""
    rows: list[list[Panel]] = []
    for panel in panels:
        room = WIDEST - sum(other.width for other in rows[-1]) if rows else 0.0
        if panel.width <= room and rows[-1][0].array.kind == panel.array.kind:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


@contextmanager
def _styled() -> Iterator[None]:
    """Sizes and fonts for everything that is drawn; letters that no font has are counted as one warning."""
    import matplotlib
    from matplotlib import font_manager

    there = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in FONTS if font in there)]
    settings: Any = {"font.family": fonts, "font.size": 8, "figure.labelsize": 8, "text.parse_math": False}
    settings |= {f"{part}.labelsize": 7 for part in ("xtick", "ytick")} | {"axes.labelsize": 8, "legend.fontsize": 7}
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph")
        yield
    if any("Glyph" in str(warning.message) for warning in caught):
        warn("some letters are in no font that is installed here; the figure has boxes in their place")


def _title(array: Array) -> str:
    one = [axis for axis in array.axes if axis.name in ("layer", "head") and len(axis.labels) == 1]
    chosen = [f"{axis.name} {axis.labels[0]}" for axis in one]
    return ", ".join([title(array), *chosen])


def _panel(sheet: Sheet, array: Array) -> Panel | None:
    names, shape = [axis.name for axis in array.axes], array.values.shape
    if array.nature in ("error", "label") or not array.values.numel():
        return None
    if names[-1] == "coordinate":
        return _planes(sheet, array)
    if len(names) >= 2 and all(axis.over for axis in array.axes[-2:]):
        return _large(sheet, array) if array.values[..., 0, 0].numel() == 1 else _small(sheet, array)
    if names[-2:] == ["row", "column"]:
        return Panel(array, _field, 3.6, 3.2)
    if names == ["position", "dimension"]:
        return Panel(array, _field, 6.5, 3.2)
    if names == ["layer", "head", "dimension"]:
        return Panel(array, _eigenvalues, 5.0, 3.0)
    if names[:2] == ["layer", "head"]:
        return Panel(array, _heads, max(2.6, 0.36 * shape[1] + 1.1), max(1.9, 0.26 * shape[0] + 1.0))
    if names == ["method", "k"]:
        return Panel(array, _drops, 5.8, 3.0)
    if names[0] == "layer":
        return Panel(array, _over_layers, 4.1, 2.6)
    if len(names) == 2 and shape[1] > 1:
        return _large(sheet, array)
    return Panel(array, _bars, 4.2, 0.17 * shape[0] + 1.0)


def _turned(array: Array) -> tuple[Float[np.ndarray, "N R C"], Axis, Axis]:
    """The maps of an array, and what is down and across; outputs are rows, so that they read down like a text."""
    values, (down, across) = array.values.double().reshape(-1, *array.values.shape[-2:]), array.axes[-2:]
    return (values.mT.numpy(), across, down) if across.name == "output" else (values.numpy(), down, across)


def _colours(array: Array) -> dict[str, Any]:
    """A scale from white; where numbers lie on both sides of zero, red above and blue below it."""
    limit = float(array.values.abs().max()) or 1.0
    if bool((array.values < 0).any()):
        return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    return {"cmap": "Blues", "vmin": 0.0, "vmax": limit}


def _large(sheet: Sheet, array: Array) -> Panel:
    _, *axes = _turned(array)
    rows, columns = (_names(sheet, axis) for axis in axes)
    width = _along(len(columns)) + 0.065 * max(map(len, rows)) + 1.2
    height = 0.85 * _along(len(rows)) + 0.06 * max(map(len, columns)) + 0.8
    return Panel(array, _large_map, max(2.8, width), max(2.2, height))


def _along(count: int) -> float:
    """Inches for so many tokens: each has room for its name, and a few have more."""
    named = min(count, NAMED)
    return max(0.8, 0.13 * named + min(0.13 * named, 1.5))


def _large_map(part: Any, sheet: Sheet, array: Array) -> None:
    """One map with the names of its tokens."""
    values, down, across = _turned(array)
    axes = part.add_subplot()
    image = axes.imshow(values[0], aspect="auto", interpolation="nearest", **_colours(array))
    rows, columns = _names(sheet, down), _names(sheet, across)
    every = -(-len(columns) // NAMED)
    upright = {"rotation": 60, "ha": "left", "va": "center", "rotation_mode": "anchor"}
    axes.set_xticks(range(0, len(columns), every), columns[::every], **upright)
    every = -(-len(rows) // NAMED)
    axes.set_yticks(range(0, len(rows), every), rows[::every])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_ylabel(_said(down))
    axes.set_xlabel(_said(across))
    _seams(axes, sheet, across)
    part.colorbar(image, ax=axes, shrink=0.8 if len(rows) < 40 else 0.4, label=array.name.replace("_", " "))


def _small(sheet: Sheet, array: Array) -> Panel:
    rows, columns = _grid(array)
    n_down, n_across = _turned(array)[0].shape[-2:]
    down, across = _few_names(sheet, array)
    wide = max(TILE, ROOM * len(across))
    tall = max(wide * min(1.0, max(0.4, n_down / n_across)), ROOM * len(down))
    beside, below = (0.05 * max(map(len, names), default=0) for names in (down, across))
    height = (tall + 0.05) * rows + 0.75 if array.values.ndim == 4 else (tall + 0.2) * rows + 0.55
    return Panel(array, _small_maps, (wide + 0.05) * columns + 1.2 + beside, height + below)


def _few_names(sheet: Sheet, array: Array) -> tuple[list[str], list[str]]:
    """What is down and across small maps, where every token has room for its name; else nothing."""
    _, *axes = _turned(array)
    down, across = (_names(sheet, axis) for axis in axes)
    return (down, across) if max(len(down), len(across)) <= FEW_TOKENS else ([], [])


def _grid(array: Array) -> tuple[int, int]:
    """Rows and columns of small multiples: layers by heads; layers alone, six in a row."""
    before = array.values.shape[:-2]
    return (before[0], before[1]) if len(before) == 2 else (-(-before[0] // 6), min(6, before[0]))


def _small_maps(part: Any, sheet: Sheet, array: Array) -> None:
    """A map for each layer and head, or for each layer, in the same colours."""
    values, down, across = _turned(array)
    grid = part.subplots(*_grid(array), squeeze=False)
    labelled = zip(array.axes[:-2], array.values.shape, strict=False)
    layers, *heads = (sheet.labels(axis, size) for axis, size in labelled)
    for axes, one in zip(grid.flat, values, strict=False):
        image = axes.imshow(one, aspect="auto", interpolation="nearest", **_colours(array))
        _seams(axes, sheet, across)
        axes.set(xticks=[], yticks=[])
        axes.tick_params(length=0, pad=1, labelsize=5)
    for axes in grid.flat[len(values) :]:
        axes.set_axis_off()
    rows, columns = _few_names(sheet, array)
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(rows)), rows)
    for axes in grid.flat[max(0, len(values) - grid.shape[1]) : len(values)]:
        axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", va="center", rotation_mode="anchor")
    for axes, label in zip(grid[0] if heads else grid.flat, heads[0] if heads else layers, strict=False):
        axes.set_title(f"{'head' if heads else 'layer'} {label}", fontsize=7)
    for axes, label in zip(grid[:, 0], layers if heads else [], strict=False):
        axes.set_ylabel(f"layer {label}", fontsize=7)
    part.supxlabel(_said(across))
    part.supylabel(_said(down))
    part.colorbar(image, ax=grid, shrink=min(1.0, 0.2 + 1.6 / len(grid)), label=array.name.replace("_", " "))


def _seams(axes: Any, sheet: Sheet, across: Axis) -> None:
    """A line where one side ends and the next begins."""
    for place in np.cumsum([len(sheet.sides[side]) for side in across.over])[:-1]:
        axes.axvline(place - 0.5, color=GREY, linewidth=0.6)


def _said(axis: Axis) -> str:
    return axis.name if axis.over in ((), (axis.name,)) else f"{axis.name} ({', then '.join(axis.over)})"


def _names(sheet: Sheet, axis: Axis, length: int = 0) -> list[str]:
    names = sheet.labels(axis, length)
    return [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names]


def _planes(sheet: Sheet, array: Array) -> Panel:
    """Maps of points: one is large; several are four in a row, with the names of their points below."""
    count = array.values[..., 0, 0].numel()
    if count == 1:
        return Panel(array, _point_maps, 6.4, 5.0)
    width = max(4.2, PLANE * min(4, count) + 0.3)
    below = 0.11 * len(_below(sheet, array, width).splitlines())
    return Panel(array, _point_maps, width, (PLANE + 0.15) * -(-count // 4) + 0.4 + below)


def _below(sheet: Sheet, array: Array, width: float) -> str:
    """The names of few points, in lines of so many inches."""
    names = _names(sheet, array.axes[-2], array.values.shape[-2])
    return textwrap.fill("    ".join(names), int(1.6 * LETTERS * width)) if len(names) <= FEW_POINTS else ""


def _point_maps(part: Any, sheet: Sheet, array: Array) -> None:
    """Points where they lie, in the colours of their labels; few of them have their names."""
    values = array.values.double().reshape(-1, *array.values.shape[-2:]).numpy()
    columns = min(4, len(values))
    grid = part.subplots(-(-len(values) // columns), columns, squeeze=False)
    label = next((other.values.numpy() for other in sheet.of(array.view) if other.nature == "label"), None)
    names = _names(sheet, array.axes[-2], values.shape[1]) if values.shape[1] <= FEW_POINTS else []
    over = sheet.labels(array.axes[0], len(values)) if len(values) > 1 else [""]
    for axes, points, where in zip(grid.flat, values, over, strict=False):
        _points(axes, points, label)
        for name, point in zip(names, points, strict=False):
            shown = name.split()[0] if len(values) > 1 else name
            axes.annotate(shown, point, fontsize=6, xytext=(3, 3), textcoords="offset points")
        axes.set_title(f"{array.axes[0].name} {where}" if where else "", fontsize=7)
        axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        room = 0.15 * (np.ptp(points, 0).max() or 1.0)  # not a margin: for an equal aspect that would be used up
        axes.update_datalim([points.min(0) - room, points.max(0) + room])
    for axes in grid.flat[len(values) :]:
        axes.set_axis_off()
    if len(values) > 1:
        below = _below(sheet, array, part.get_figure(root=True).get_figwidth())
        part.supxlabel(below, fontsize=6, x=0.01, ha="left", color=GREY)


def _points(axes: Any, points: Float[np.ndarray, "N 2"], labels: Int[np.ndarray, " N"] | None) -> None:
    size = 26 if len(points) <= FEW_POINTS else max(3, min(16, 6000 / len(points)))
    if labels is None:
        axes.scatter(*points.T, s=size, color=LINES[0][0], linewidths=0)
        return
    for label in np.unique(labels):
        colour, marker = LINES[label % len(LINES)]
        own = points[labels == label]
        axes.scatter(*own.T, s=size, color=colour, marker=marker, linewidths=0, alpha=0.75, label=str(label))
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
        axes.annotate(str(label), own.mean(0), ha="center", va="center", fontsize=7, bbox=box)


def _field(part: Any, sheet: Sheet, array: Array) -> None:
    """Numbers without a text, as the classical picture of positions shows them."""
    axes = part.add_subplot(xlabel=array.axes[-1].name, ylabel=array.axes[-2].name)
    image = axes.imshow(_turned(array)[0][0], aspect="auto", interpolation="nearest", **_colours(array))
    axes.locator_params(integer=True)
    part.colorbar(image, ax=axes, label="value")


def _heads(part: Any, sheet: Sheet, array: Array) -> None:
    """A number for every head: of its queries the most keys, the mean of anything else."""
    values = array.values.double()
    if values.ndim > 2:
        values = values.amax(-1) if array.nature == "count" else values.mean(-1)
    limit = max(1.0, float(values.abs().max()))
    axes = part.add_subplot(xlabel="head", ylabel="layer")
    axes.imshow(values.numpy(), aspect="auto", cmap="Blues", vmin=0.0, vmax=limit)
    axes.set_xticks(range(values.shape[1]), sheet.labels(array.axes[1], values.shape[1]))
    axes.set_yticks(range(values.shape[0]), sheet.labels(array.axes[0], values.shape[0]))
    axes.tick_params(length=0)
    number = "{:.3g}" if bool((values == values.round()).all()) else "{:.2f}"
    for (layer, head), value in np.ndenumerate(values.numpy()):
        colour = "white" if value > 0.6 * limit else "black"
        axes.text(head, layer, number.format(value), ha="center", va="center", fontsize=6, color=colour)


def _eigenvalues(part: Any, sheet: Sheet, array: Array) -> None:
    """Of all heads, largest first; darker for a deeper layer."""
    from matplotlib import colormaps

    axes = part.add_subplot(xlabel="rank", ylabel="eigenvalue")
    shades = colormaps["viridis_r"](np.linspace(1.0, 0.1, len(array.values))[::-1])
    for colour, label, heads in zip(shades, sheet.labels(array.axes[0], len(array.values)), array.values, strict=True):
        lines = axes.plot(heads.T.numpy(), color=colour, linewidth=0.8)
        lines[0].set_label(f"layer {label}")
    axes.axhline(0.0, color=GREY, linewidth=0.6, linestyle=":")
    _beside(axes)


def _drops(part: Any, sheet: Sheet, array: Array) -> None:
    """A line for each view over the number of inputs that are taken away."""
    removed = [int(label) for label in array.axes[1].labels]
    axes = part.add_subplot(xlabel="inputs taken away", ylabel="log-probability lost")
    for place, (method, values) in enumerate(zip(array.axes[0].labels, array.values.numpy(), strict=True)):
        colour, marker = _line(method, place)
        # Lines and markers at the same place stay visible, a thin one upon a thick one.
        style = {"marker": marker, "markersize": max(4.5, 9 - 2 * place), "linewidth": max(1.0, 2.8 - 0.4 * place)}
        if method == "random":
            style = {"linestyle": "--", "linewidth": 1.5}
        axes.plot(removed, values, color=colour, label=method.replace("_", " "), **style)
    axes.set_xticks(removed)
    _beside(axes)


def _line(method: str, place: int) -> tuple[str, str]:
    return (GREY, "") if method == "random" else LINES[place % len(LINES)]


def _beside(axes: Any) -> None:
    """A legend that covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _over_layers(part: Any, sheet: Sheet, array: Array) -> None:
    """A curve over the layers; of numbers for each token, all of them pale and their mean."""
    values = array.values.double().numpy()
    layers, labels = range(len(values)), sheet.labels(array.axes[0], len(values))
    axes = part.add_subplot(xlabel="layer", ylabel="share" if "share" in title(array) else "")
    if values.ndim == 2:
        axes.plot(layers, values, color="#999999", linewidth=0.5, alpha=0.6, marker=".", markersize=2)
        values = values.mean(-1)
    axes.plot(layers, values, color=LINES[0][0], marker="o", markersize=4, label="mean")
    if axes.get_ylabel():
        axes.set_ylim(-0.02, 1.02)
    every = -(-len(layers) // TICKS)
    axes.set_xticks(layers[::every], labels[::every])
    axes.spines[["top", "right"]].set_visible(False)


def _bars(part: Any, sheet: Sheet, array: Array) -> None:
    """A number for each token or method, with its standard error where there is one."""
    names = _names(sheet, array.axes[0], len(array.values))
    error = next(
        (other.values for other in sheet.of(array.view) if (other.nature, other.axes) == ("error", array.axes)), None
    )
    colours = [
        _line(name, place)[0] if array.axes[0].name == "method" else LINES[0][0] for place, name in enumerate(names)
    ]
    axes = part.add_subplot()
    values, error = array.values.flatten(), None if error is None else error.flatten()
    axes.barh(range(len(names)), values.numpy(), color=colours, xerr=None if error is None else error.numpy())
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
