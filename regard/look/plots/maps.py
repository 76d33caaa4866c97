"""Maps: numbers over two axes in colours. Of tokens one large map or many small ones, of heads, and of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from regard.look.figures import signed
from regard.look.plots.panel import GREY, Panel, names, signs
from regard.look.view import Array, Axis, Sheet

NAMED = 100
"""Tokens along an axis that have room for a name each."""
TILE = 1.2
"""Inches of a small map."""
FEW_TOKENS, ROOM = 24, 0.1
"""Tokens of a small map that have room for a name each, and inches for each of these."""


def over_tokens(sheet: Sheet, array: Array) -> Panel:
    """One large map where there is one, else a small one for each layer and head."""
    return large(sheet, array) if array.values[..., 0, 0].numel() == 1 else _small(sheet, array)


def of_heads(array: Array) -> Panel:
    """A number for every head."""
    n_layers, n_heads = array.values.shape[:2]
    return Panel(array, _heads, max(2.6, 0.36 * n_heads + 1.1), max(1.9, 0.26 * n_layers + 1.0))


def of_vectors(array: Array, width: float) -> Panel:
    """Numbers without a text."""
    return Panel(array, _field, width, 3.2)


def large(sheet: Sheet, array: Array) -> Panel:
    _, *axes = _turned(array)
    rows, columns = (names(sheet, axis) for axis in axes)
    width = _along(len(columns)) + 0.065 * max(map(len, rows)) + 1.2 + _room(array)
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
    rows, columns = names(sheet, down), names(sheet, across)
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
    part.colorbar(image, ax=axes, shrink=0.8 if len(rows) < 40 else 0.4, label=_measured(array, array.name))


def _small(sheet: Sheet, array: Array) -> Panel:
    rows, columns = _grid(array)
    n_down, n_across = _turned(array)[0].shape[-2:]
    down, across = _few_names(sheet, array)
    wide = max(TILE, ROOM * len(across))
    tall = max(wide * min(1.0, max(0.4, n_down / n_across)), ROOM * len(down))
    beside, below = (0.05 * max(map(len, labels), default=0) for labels in (down, across))
    height = (tall + 0.05) * rows + 0.75 if array.values.ndim == 4 else (tall + 0.2) * rows + 0.55
    return Panel(array, _small_maps, (wide + 0.05) * columns + 1.2 + _room(array) + beside, height + below)


def _few_names(sheet: Sheet, array: Array) -> tuple[list[str], list[str]]:
    """What is down and across small maps, where every token has room for its name; else nothing."""
    _, *axes = _turned(array)
    down, across = (names(sheet, axis) for axis in axes)
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
    part.colorbar(image, ax=grid, shrink=min(1.0, 0.2 + 1.6 / len(grid)), label=_measured(array, array.name))


def _seams(axes: Any, sheet: Sheet, across: Axis) -> None:
    """A line where one side ends and the next begins."""
    for place in np.cumsum([len(sheet.sides[side]) for side in across.over])[:-1]:
        axes.axvline(place - 0.5, color=GREY, linewidth=0.6)


def _measured(array: Array, name: str) -> str:
    """What stands at a scale of colours."""
    return "\n".join(filter(None, (name.replace("_", " "), signs(array))))


def _room(array: Array) -> float:
    """Inches that the meaning of two colours takes beside its scale."""
    return 0.3 if signs(array) else 0.0


def _said(axis: Axis) -> str:
    return axis.name if axis.over in ((), (axis.name,)) else f"{axis.name} ({', then '.join(axis.over)})"


def _turned(array: Array) -> tuple[Float[np.ndarray, "N R C"], Axis, Axis]:
    """The maps of an array, and what is down and across; outputs are rows, so that they read down like a text."""
    values, (down, across) = array.values.double().reshape(-1, *array.values.shape[-2:]), array.axes[-2:]
    return (values.mT.numpy(), across, down) if across.name == "output" else (values.numpy(), down, across)


def _colours(array: Array) -> dict[str, Any]:
    """A scale from white; where numbers lie on both sides of zero, blue above and orange below it."""
    limit = float(array.values.abs().max()) or 1.0
    if bool((array.values < 0).any()):
        return {"cmap": signed(), "vmin": -limit, "vmax": limit}
    return {"cmap": "Blues", "vmin": 0.0, "vmax": limit}


def _field(part: Any, sheet: Sheet, array: Array) -> None:
    """Numbers without a text, as the classical picture of positions shows them."""
    axes = part.add_subplot(xlabel=array.axes[-1].name, ylabel=array.axes[-2].name)
    image = axes.imshow(_turned(array)[0][0], aspect="auto", interpolation="nearest", **_colours(array))
    axes.locator_params(integer=True)
    part.colorbar(image, ax=axes, label=_measured(array, "value"))


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
