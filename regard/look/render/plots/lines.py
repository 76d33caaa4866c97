"""Line and bar panels: values by layer, eigenvalues, faithfulness curves, one value per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.look.render.figures import LINE_STYLES, NEGATIVE_COLOUR, POSITIVE_COLOUR
from regard.look.render.plots.panel import GREY, ArrayPanel, axis_labels, describe_signs
from regard.look.views.titles import bar_limit, is_fraction
from regard.look.views.view_data import ViewArray, ViewData

MAX_LAYER_TICKS = 13
"""Layer labels along an axis, at most."""


def eigenvalue_panel(array: ViewArray) -> ArrayPanel:
    """Return a panel with a line per head."""
    return ArrayPanel(array, _draw_eigenvalues, 5.0, 3.0)


def faithfulness_panel(array: ViewArray) -> ArrayPanel:
    """Return a panel with a line per compared view."""
    return ArrayPanel(array, _draw_faithfulness, 5.8, 3.0)


def layer_curve_panel(array: ViewArray) -> ArrayPanel:
    """Return a panel of values by layer."""
    return ArrayPanel(array, _draw_layer_curve, 4.1, 2.6)


def bar_panel(array: ViewArray) -> ArrayPanel:
    """Return a panel with a bar per token or method."""
    return ArrayPanel(array, _draw_bars, 4.2, 0.17 * len(array.values) + 1.0 + (0.3 if _sign_label(array) else 0.0))


def _draw_eigenvalues(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw the eigenvalues of all heads, largest first; deeper layers are darker."""
    from matplotlib import colormaps

    axes = subfigure.add_subplot(xlabel="rank", ylabel="eigenvalue")
    shades = colormaps["viridis_r"](np.linspace(1.0, 0.1, len(array.values))[::-1])
    for colour, label, heads in zip(
        shades, view_data.labels(array.axes[0], len(array.values)), array.values, strict=True
    ):
        lines = axes.plot(heads.T.numpy(), color=colour, linewidth=0.8)
        lines[0].set_label(f"layer {label}")
    axes.axhline(0.0, color=GREY, linewidth=0.6, linestyle=":")
    _place_legend_outside(axes)


def _draw_faithfulness(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw a line per view over the number of removed inputs."""
    removed = [int(label) for label in array.axes[1].labels]
    axes = subfigure.add_subplot(xlabel="inputs removed", ylabel="drop of the log-probability")
    for index, (method, values) in enumerate(zip(array.axes[0].labels, array.values.numpy(), strict=True)):
        colour, marker = _line_style(method, index)
        # Coinciding lines and markers stay visible: thin ones are drawn over thick ones.
        style = {"marker": marker, "markersize": max(4.5, 9 - 2 * index), "linewidth": max(1.0, 2.8 - 0.4 * index)}
        if method == "random":
            style = {"linestyle": "--", "linewidth": 1.5}
        axes.plot(removed, values, color=colour, label=method.replace("_", " "), **style)
    axes.set_xticks(removed)
    _place_legend_outside(axes)


def _draw_layer_curve(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw a curve over the layers; of values per token, all of them pale and their mean."""
    values = array.values.double().numpy()
    layers, labels = range(len(values)), view_data.labels(array.axes[0], len(values))
    axes = subfigure.add_subplot(xlabel="layer", ylabel="fraction" if is_fraction(array) else "")
    if values.ndim == 2:
        axes.plot(layers, values, color="#999999", linewidth=0.5, alpha=0.6, marker=".", markersize=2)
        values = values.mean(-1)
    axes.plot(layers, values, color=LINE_STYLES[0][0], marker="o", markersize=4, label="mean")
    if is_fraction(array):
        axes.set_ylim(-0.02, 1.02)
    every = -(-len(layers) // MAX_LAYER_TICKS)
    axes.set_xticks(layers[::every], labels[::every])
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(subfigure: Any, view_data: ViewData, array: ViewArray) -> None:
    """Draw a bar per token or method, with its standard error if available."""
    labels = axis_labels(view_data, array.axes[0], len(array.values))
    values = array.values.flatten().numpy()
    error = next(
        (
            other.values
            for other in view_data.arrays_of(array.view)
            if (other.value_kind, other.axes) == ("error", array.axes)
        ),
        None,
    )
    axes = subfigure.add_subplot(xlabel=_sign_label(array))
    spread = None if error is None else error.flatten().numpy()
    axes.barh(range(len(labels)), values, color=_bar_colours(array, labels), xerr=spread)
    axes.set_yticks(range(len(labels)), [label.replace("_", " ") for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)  # a relative margin would be several bars wide
    if limit := bar_limit(array):
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        axes.set_xlim(min(low, -limit if low < 0 else 0.0), max(high, limit))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    if (values < 0).any():
        axes.axvline(0.0, color=GREY, linewidth=0.6)


def _bar_colours(array: ViewArray, labels: Sequence[str]) -> list[str]:
    """Return the colours of bars: of methods those of their lines, else blue for positive and orange for negative."""
    if array.axes[0].name == "method":
        return [_line_style(label, index)[0] for index, label in enumerate(labels)]
    return [POSITIVE_COLOUR if value >= 0 else NEGATIVE_COLOUR for value in array.values.flatten().tolist()]


def _sign_label(array: ViewArray) -> str:
    """Return the legend of bar colours; those of methods need none."""
    return "" if array.axes[0].name == "method" else describe_signs(array)


def _line_style(method: str, index: int) -> tuple[str, str]:
    return (GREY, "") if method == "random" else LINE_STYLES[index % len(LINE_STYLES)]


def _place_legend_outside(axes: Any) -> None:
    """Place the legend outside the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
