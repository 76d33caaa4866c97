"""Scatter plots: one large plot with a legend of its groups, or a small one per layer.

Few points are all labelled; of many points, those with free space around them. A group has its number near its centre.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from regard.look.render.figures import LINE_STYLES
from regard.look.render.plots.label_placement import (
    LabelLayout,
    Offset,
    adjacent_offsets,
    farthest_point_order,
    group_close_points,
    label_size,
    ring_offsets,
)
from regard.look.render.plots.panel import (
    GREY,
    TITLE_CHARACTERS_PER_INCH,
    ArrayPanel,
    are_numbered,
    axis_labels,
    balanced_grid,
    truncate,
)
from regard.look.views.view_data import ViewArray, ViewData

SMALL_SCATTER_SIZE, LARGE_SCATTER_SIZE = 2.1, 5.8
"""Inches of a small and of a large plot."""
MIN_ASPECT, MAX_ASPECT = 0.5, 0.85
"""Limits of height divided by width of a large plot."""
SCATTERS_PER_ROW = 4
"""Small plots per row, at most."""
RELATIVE_MARGIN = 0.08
"""Margin around the points, as a fraction of their larger extent."""
MAX_LABELLED_POINTS = 30
"""The most points that are all labelled."""
MAX_LABELS, CANDIDATES_PER_LABEL = 24, 5
"""Labels on a plot of many points, and candidate points tried per label."""
MAX_LEGEND_GROUPS = 24
"""Groups in a legend, at most."""
LEGEND_LINE_HEIGHT, LEGEND_WIDTH = 0.17, 3.0
"""Inches of a legend line, and of its names."""
MAX_LEGEND_NAME_LENGTH = 34
"""Characters of a name in the legend."""

PlanePoints = Float[np.ndarray, "N 2"]


def scatter_panel(view_data: ViewData, array: ViewArray) -> ArrayPanel:
    """Return one large plot, or small ones with the names of their points below."""
    count = array.values[..., 0, 0].numel()
    if count == 1:
        groups = _find_group_array(view_data, array)
        tall = LARGE_SCATTER_SIZE * _aspect_ratio(array.values.double().reshape(-1, 2).numpy())
        listed = (
            0 if groups is None else LEGEND_LINE_HEIGHT * (min(MAX_LEGEND_GROUPS, int(groups.values.max()) + 1) + 2)
        )
        beside_it = 0.0 if groups is None else LEGEND_WIDTH if groups.names else 0.9
        return ArrayPanel(array, _draw_large_scatter, LARGE_SCATTER_SIZE + beside_it, max(tall, listed) + 0.4)
    n_rows, n_columns = balanced_grid(count, SCATTERS_PER_ROW)
    width = max(4.2, SMALL_SCATTER_SIZE * n_columns + 0.3)
    below = 0.11 * len(_numbered_names(view_data, array, width).splitlines())
    return ArrayPanel(array, _draw_small_scatters, width, (SMALL_SCATTER_SIZE + 0.15) * n_rows + 0.4 + below)


def _aspect_ratio(points: PlanePoints) -> float:
    """Return height divided by width of the points' extent, within limits."""
    across, up = np.ptp(points, 0) + 2 * _data_margin(points)
    return float(min(MAX_ASPECT, max(MIN_ASPECT, up / across)))


def _data_margin(points: PlanePoints) -> float:
    return float(RELATIVE_MARGIN * (np.ptp(points, 0).max() or 1.0))


def _find_group_array(view_data: ViewData, array: ViewArray) -> ViewArray | None:
    """Return the array of group labels, if there is one."""
    return next((other for other in view_data.arrays_of(array.view) if other.value_kind == "label"), None)


def _draw_large_scatter(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw the points in the colours of their groups."""
    points = array.values.double().reshape(-1, 2).numpy()
    groups = _find_group_array(view_data, array)
    labels = np.zeros(len(points), int) if groups is None else groups.values.numpy()
    axes = subfigure.add_subplot()
    for label in np.unique(labels).tolist():
        _draw_points(
            axes, points[labels == label], len(points), label, "" if groups is None else _legend_entry(groups, label)
        )
    frame, seen = _fit_axes(
        axes, points, (72 * (LARGE_SCATTER_SIZE - 0.15), 72 * (LARGE_SCATTER_SIZE * _aspect_ratio(points) - 0.05))
    )
    if groups is not None:
        _draw_group_numbers(axes, frame, points, seen, labels)
        _draw_legend(axes, groups)
    _draw_point_names(axes, frame, points, seen, axis_labels(view_data, array.axes[-2], len(points)))


def _fit_axes(axes: Any, points: PlanePoints, size: Offset) -> tuple[LabelLayout, PlanePoints]:
    """Set equal scales with a margin; return the label layout and the points in its coordinates."""
    margin, middle = _data_margin(points), (points.min(0) + points.max(0)) / 2
    scale = float((np.array(size) / (np.ptp(points, 0) + 2 * margin)).min())
    low, high = middle - np.array(size) / (2 * scale), middle + np.array(size) / (2 * scale)
    axes.set(xticks=[], yticks=[], aspect="equal", anchor="NW", xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    seen = (points - low) * scale
    return LabelLayout(size, seen), seen


def _draw_points(axes: Any, points: PlanePoints, n_points: int, label: int, entry: str = "") -> None:
    colour, marker = LINE_STYLES[label % len(LINE_STYLES)]
    size = 26 if n_points <= MAX_LABELLED_POINTS else max(3, min(16, 6000 / n_points))
    axes.scatter(*points.T, s=size, color=colour, marker=marker, linewidths=0, alpha=0.75, label=entry or None)


def _draw_group_numbers(
    axes: Any, layout: LabelLayout, points: PlanePoints, layout_points: PlanePoints, labels: Int[np.ndarray, " N"]
) -> None:
    """Draw the number of each group at its centre, or beside it with a line where it would cover others."""
    for label in np.unique(labels).tolist():
        colour, own = LINE_STYLES[label % len(LINE_STYLES)][0], labels == label
        size = (6.0 * len(str(label)) + 5, 12.0)
        many = int(own.sum()) > MAX_LABELLED_POINTS
        at = layout_points[own].mean(0)
        offset = layout.place_label((at[0], at[1]), size, ring_offsets(), may_cover_points=many)
        offset = offset or layout.place_label((at[0], at[1]), size, ring_offsets(), may_cover_points=True) or (0.0, 0.0)
        style = {"fontsize": 7, "ha": "center", "va": "center", "textcoords": "offset points", "zorder": 4}
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(str(label), points[own].mean(0), xytext=offset, bbox=box, arrowprops=line, **style)


def _legend_entry(groups: ViewArray, label: int) -> str:
    size = int((groups.values == label).sum())
    name = f"  {truncate(groups.names[label], MAX_LEGEND_NAME_LENGTH)}" if label < len(groups.names) else ""
    return f"{label} ({size:,}){name}"


def _draw_legend(axes: Any, groups: ViewArray) -> None:
    """Draw the legend of groups: number, size and a representative."""
    handles, entries = axes.get_legend_handles_labels()
    left_out = len(entries) - MAX_LEGEND_GROUPS
    title = f"{groups.name} (size)" + (", and what is nearest to its centre" if groups.names else "")
    title += f"\n{left_out:,} more are not listed" if left_out > 0 else ""
    style = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0, "frameon": False}
    legend = axes.legend(
        handles[:MAX_LEGEND_GROUPS],
        entries[:MAX_LEGEND_GROUPS],
        title=title,
        title_fontsize=7,
        alignment="left",
        **style,
    )
    for handle in legend.legend_handles:
        handle.set_sizes([20])


def _draw_point_names(
    axes: Any, layout: LabelLayout, points: PlanePoints, layout_points: PlanePoints, labels: Sequence[str]
) -> None:
    """Label points spread over the plot, as many as have free space."""
    named = 0
    for number in farthest_point_order(layout_points, CANDIDATES_PER_LABEL * MAX_LABELS):
        size, at = label_size(labels[number]), layout_points[number]
        if (offset := layout.place_label((at[0], at[1]), size, adjacent_offsets(size))) is not None:
            _annotate_point(axes, labels[number], points[number], offset)
            named += 1
        if named == MAX_LABELS:
            return


def _annotate_point(axes: Any, name: str, point: Float[np.ndarray, " 2"], offset: Offset) -> None:
    """Draw a label centred at an offset from a point, aligned to the side of the point."""
    half, (across, up) = label_size(name)[0] / 2, offset
    side = "left" if across > 0 else "right" if across < 0 else "center"
    near = across - np.sign(across) * half
    style = {"fontsize": 6, "ha": side, "va": "center", "textcoords": "offset points"}
    axes.annotate(name, point, xytext=(near, up), **style)


def _draw_small_scatters(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw a plot per layer with numbered points and their names below; coinciding points share a label."""
    values = array.values.double().reshape(-1, *array.values.shape[-2:]).numpy()
    grid = subfigure.subplots(*balanced_grid(len(values), SCATTERS_PER_ROW), squeeze=False)
    groups = _find_group_array(view_data, array)
    colours = np.zeros(values.shape[1], int) if groups is None else groups.values.numpy()
    for axes, points, where in zip(grid.flat, values, view_data.labels(array.axes[0], len(values)), strict=False):
        for label in np.unique(colours).tolist():
            _draw_points(axes, points[colours == label], len(points), label)
        frame, seen = _fit_axes(axes, points, (72 * (SMALL_SCATTER_SIZE - 0.1), 72 * (SMALL_SCATTER_SIZE - 0.1)))
        for some in group_close_points(seen) if len(points) <= MAX_LABELLED_POINTS else []:
            name = ", ".join(str(number + 1) for number in some)
            size, at = label_size(name), seen[some[0]]
            offset = frame.place_label((at[0], at[1]), size, adjacent_offsets(size)) or next(adjacent_offsets(size))
            _annotate_point(axes, name, points[some[0]], offset)
        axes.set_title(f"{array.axes[0].name} {where}", fontsize=7)
    for axes in grid.flat[len(values) :]:
        axes.set_axis_off()
    below = _numbered_names(view_data, array, subfigure.bbox.width / subfigure.get_figure(root=True).dpi)
    subfigure.supxlabel(below, fontsize=6, x=0.01, ha="left", color=GREY)


def _numbered_names(view_data: ViewData, array: ViewArray, width: float) -> str:
    """Return the numbered names of few points, wrapped to `width` inches."""
    labels = _number_labels(axis_labels(view_data, array.axes[-2], array.values.shape[-2]))
    return (
        textwrap.fill("    ".join(labels), int(1.6 * TITLE_CHARACTERS_PER_INCH * width))
        if len(labels) <= MAX_LABELLED_POINTS
        else ""
    )


def _number_labels(labels: Sequence[str]) -> list[str]:
    """Return names with their numbers from 1, which some already have (look/corpus/senses.py)."""
    if are_numbered(labels):
        return list(labels)
    return [f"{number} {label}".rstrip() for number, label in enumerate(labels, 1)]
