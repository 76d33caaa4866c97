"""Heat maps: of tokens one large map or small multiples, of heads, and of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from regard.look.render.figures import diverging_colormap
from regard.look.render.plots.panel import GREY, ArrayPanel, are_numbered, axis_labels, balanced_grid, describe_signs
from regard.look.views.view_data import Axis, ViewArray, ViewData

MAX_LABELLED_TOKENS = 100
"""The most tokens along an axis with a label each."""
SMALL_MAP_SIZE = 1.2
"""Width of a small map in inches."""
MAX_SMALL_MAP_TOKENS, LABEL_SPACING = 24, 0.1
"""The most tokens of a small map with a label each, and the inches per label."""


def token_map_panel(view_data: ViewData, array: ViewArray) -> ArrayPanel:
    """Return a large map for a single matrix, else small multiples by layer and head."""
    return (
        large_map_panel(view_data, array)
        if array.values[..., 0, 0].numel() == 1
        else _small_maps_panel(view_data, array)
    )


def head_map_panel(array: ViewArray) -> ArrayPanel:
    """Return a panel with one number per head."""
    n_layers, n_heads = array.values.shape[:2]
    return ArrayPanel(array, _draw_head_map, max(2.6, 0.36 * n_heads + 1.1), max(1.9, 0.26 * n_layers + 1.0))


def vector_map_panel(array: ViewArray, width: float) -> ArrayPanel:
    """Return a panel of numbers that are not over tokens."""
    return ArrayPanel(array, _draw_vector_map, width, 3.2)


def large_map_panel(view_data: ViewData, array: ViewArray) -> ArrayPanel:
    _, *axes = _orient_maps(array)
    rows, columns = (axis_labels(view_data, axis) for axis in axes)
    width = _axis_inches(len(columns)) + 0.065 * max(map(len, rows)) + 1.2 + _sign_label_inches(array)
    height = 0.85 * _axis_inches(len(rows)) + 0.06 * max(map(len, columns)) + 0.8
    return ArrayPanel(array, _draw_large_map, max(2.8, width), max(2.2, height))


def _axis_inches(n_tokens: int) -> float:
    """Return the inches for that many labelled tokens; few tokens get more each."""
    named = min(n_tokens, MAX_LABELLED_TOKENS)
    return max(0.8, 0.13 * named + min(0.13 * named, 1.5))


def _draw_large_map(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw one map with its token labels."""
    values, down, across = _orient_maps(array)
    axes = subfigure.add_subplot()
    image = axes.imshow(values[0], aspect="auto", interpolation="nearest", **_colour_scale(array))
    _hatch_masked_cells(axes, array)
    rows, columns = axis_labels(view_data, down), axis_labels(view_data, across)
    every = -(-len(columns) // MAX_LABELLED_TOKENS)
    upright = {"rotation": 60, "ha": "left", "va": "center", "rotation_mode": "anchor"}
    axes.set_xticks(range(0, len(columns), every), columns[::every], **upright)
    every = -(-len(rows) // MAX_LABELLED_TOKENS)
    axes.set_yticks(range(0, len(rows), every), rows[::every])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_ylabel(_describe_axis(down))
    axes.set_xlabel(_describe_axis(across))
    _draw_side_boundaries(axes, view_data, across)
    subfigure.colorbar(image, ax=axes, shrink=0.8 if len(rows) < 40 else 0.4, label=_colourbar_label(array, array.name))


def _small_maps_panel(view_data: ViewData, array: ViewArray) -> ArrayPanel:
    rows, columns = _grid_shape(array)
    n_down, n_across = _orient_maps(array)[0].shape[-2:]
    down, across = _small_map_labels(view_data, array)
    wide = max(SMALL_MAP_SIZE, LABEL_SPACING * len(across))
    tall = max(wide * min(1.0, max(0.4, n_down / n_across)), LABEL_SPACING * len(down))
    beside, below = (0.05 * max(map(len, labels), default=0) for labels in (down, across))
    height = (tall + 0.05) * rows + 0.75 if array.values.ndim == 4 else (tall + 0.2) * rows + 0.55
    return ArrayPanel(
        array, _draw_small_maps, (wide + 0.05) * columns + 1.2 + _sign_label_inches(array) + beside, height + below
    )


def _small_map_labels(view_data: ViewData, array: ViewArray) -> tuple[list[str], list[str]]:
    """Return the row and column labels of small maps, or none if they do not fit."""
    _, *axes = _orient_maps(array)
    down, across = (axis_labels(view_data, axis) for axis in axes)
    if max(len(down), len(across)) > MAX_SMALL_MAP_TOKENS:
        return [], []
    return down, [label.partition(" ")[0] for label in across] if are_numbered(across) else across


def _grid_shape(array: ViewArray) -> tuple[int, int]:
    """Return rows and columns of small multiples: layers by heads, or layers alone, at most six in a row."""
    before = array.values.shape[:-2]
    return (before[0], before[1]) if len(before) == 2 else balanced_grid(before[0], 6)


def _draw_small_maps(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw a map for each layer and head, or each layer, on one colour scale."""
    values, down, across = _orient_maps(array)
    grid = subfigure.subplots(*_grid_shape(array), squeeze=False)
    labelled = zip(array.axes[:-2], array.values.shape, strict=False)
    layers, *heads = (view_data.labels(axis, size) for axis, size in labelled)
    for axes, one in zip(grid.flat, values, strict=False):
        image = axes.imshow(one, aspect="auto", interpolation="nearest", **_colour_scale(array))
        _hatch_masked_cells(axes, array)
        _draw_side_boundaries(axes, view_data, across)
        axes.set(xticks=[], yticks=[])
        axes.tick_params(length=0, pad=1, labelsize=5)
    for axes in grid.flat[len(values) :]:
        axes.set_axis_off()
    rows, columns = _small_map_labels(view_data, array)
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(rows)), rows)
    for axes in grid.flat[max(0, len(values) - grid.shape[1]) : len(values)]:
        axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", va="center", rotation_mode="anchor")
    for axes, label in zip(grid[0] if heads else grid.flat, heads[0] if heads else layers, strict=False):
        axes.set_title(f"{'head' if heads else 'layer'} {label}", fontsize=7)
    for axes, label in zip(grid[:, 0], layers if heads else [], strict=False):
        axes.set_ylabel(f"layer {label}", fontsize=7)
    subfigure.supxlabel(_describe_axis(across))
    subfigure.supylabel(_describe_axis(down))
    subfigure.colorbar(
        image, ax=grid, shrink=min(1.0, 0.2 + 1.6 / len(grid)), label=_colourbar_label(array, array.name)
    )


def _draw_side_boundaries(axes: Any, view_data: ViewData, column_axis: Axis) -> None:
    """Draw a line between the sides of an axis."""
    for boundary in np.cumsum([len(view_data.sides[side]) for side in column_axis.over])[:-1]:
        axes.axvline(boundary - 0.5, color=GREY, linewidth=0.6)


def _hatch_masked_cells(axes: Any, array: ViewArray) -> None:
    """Hatch the background, which is visible only through cells without a value."""
    if bool(array.values.isnan().any()):
        axes.patch.set(facecolor="#EEEEEE", hatch="/////", edgecolor="#BBBBBB", linewidth=0.0)


def _colourbar_label(array: ViewArray, name: str) -> str:
    """Return the label of a colour bar, which also explains hatched cells."""
    hatched = "hatched: masked" if bool(array.values.isnan().any()) else ""
    return "\n".join(filter(None, (name.replace("_", " "), describe_signs(array), hatched)))


def _sign_label_inches(array: ViewArray) -> float:
    """Return the inches that the legend of two colours needs beside the colour bar."""
    return 0.3 if describe_signs(array) else 0.0


def _describe_axis(axis: Axis) -> str:
    return axis.name if axis.over in ((), (axis.name,)) else f"{axis.name} ({', then '.join(axis.over)})"


def _orient_maps(array: ViewArray) -> tuple[Float[np.ndarray, "N R C"], Axis, Axis]:
    """Return the matrices of an array and their row and column axes; outputs are rows."""
    values, (down, across) = array.values.double().reshape(-1, *array.values.shape[-2:]), array.axes[-2:]
    return (values.mT.numpy(), across, down) if across.name == "output" else (values.numpy(), down, across)


def _colour_scale(array: ViewArray) -> dict[str, Any]:
    """Return a colour scale from white to blue, or for signed values from orange to blue."""
    limit = float(array.values.abs().nan_to_num().max()) or 1.0
    if bool((array.values < 0).any()):
        return {"cmap": diverging_colormap(), "vmin": -limit, "vmax": limit}
    return {"cmap": "Blues", "vmin": 0.0, "vmax": limit}


def _draw_vector_map(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw numbers that are not over tokens, as in the usual picture of sinusoidal positions."""
    axes = subfigure.add_subplot(xlabel=array.axes[-1].name, ylabel=array.axes[-2].name)
    image = axes.imshow(_orient_maps(array)[0][0], aspect="auto", interpolation="nearest", **_colour_scale(array))
    axes.locator_params(integer=True)
    subfigure.colorbar(image, ax=axes, label=_colourbar_label(array, "value"))


def _draw_head_map(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw one number per head: counts by their maximum over queries, other values by their mean."""
    values = array.values.double()
    if values.ndim > 2:
        values = values.amax(-1) if array.value_kind == "count" else values.mean(-1)
    limit = max(1.0, float(values.abs().max()))
    axes = subfigure.add_subplot(xlabel="head", ylabel="layer")
    axes.imshow(values.numpy(), aspect="auto", cmap="Blues", vmin=0.0, vmax=limit)
    axes.set_xticks(range(values.shape[1]), view_data.labels(array.axes[1], values.shape[1]))
    axes.set_yticks(range(values.shape[0]), view_data.labels(array.axes[0], values.shape[0]))
    axes.tick_params(length=0)
    number = "{:.3g}" if bool((values == values.round()).all()) else "{:.2f}"
    for (layer, head), value in np.ndenumerate(values.numpy()):
        colour = "white" if value > 0.6 * limit else "black"
        axes.text(head, layer, number.format(value), ha="center", va="center", fontsize=6, color=colour)
