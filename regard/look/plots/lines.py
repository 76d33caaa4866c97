"""Lines and bars: what changes with the layer, eigenvalues, what a prediction loses, a number for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.look.figures import ABOVE, BELOW, LINES
from regard.look.meaning import is_share
from regard.look.plots.panel import GREY, Panel, names, signs
from regard.look.view import Array, Sheet

TICKS = 13
"""Layers that are named along an axis."""


def of_heads(array: Array) -> Panel:
    """A line for every head."""
    return Panel(array, _eigenvalues, 5.0, 3.0)


def of_methods(array: Array) -> Panel:
    """A line for every view that is compared."""
    return Panel(array, _drops, 5.8, 3.0)


def over_layers(array: Array) -> Panel:
    """What changes from layer to layer."""
    return Panel(array, _over_layers, 4.1, 2.6)


def bars(array: Array) -> Panel:
    """A bar for each token or method."""
    return Panel(array, _bars, 4.2, 0.17 * len(array.values) + 1.0 + (0.3 if _meant(array) else 0.0))


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


def _over_layers(part: Any, sheet: Sheet, array: Array) -> None:
    """A curve over the layers; of numbers for each token, all of them pale and their mean."""
    values = array.values.double().numpy()
    layers, labels = range(len(values)), sheet.labels(array.axes[0], len(values))
    axes = part.add_subplot(xlabel="layer", ylabel="share" if is_share(array) else "")
    if values.ndim == 2:
        axes.plot(layers, values, color="#999999", linewidth=0.5, alpha=0.6, marker=".", markersize=2)
        values = values.mean(-1)
    axes.plot(layers, values, color=LINES[0][0], marker="o", markersize=4, label="mean")
    if is_share(array):
        axes.set_ylim(-0.02, 1.02)
    every = -(-len(layers) // TICKS)
    axes.set_xticks(layers[::every], labels[::every])
    axes.spines[["top", "right"]].set_visible(False)


def _bars(part: Any, sheet: Sheet, array: Array) -> None:
    """A number for each token or method, with its standard error where there is one."""
    labels = names(sheet, array.axes[0], len(array.values))
    values = array.values.flatten().numpy()
    error = next(
        (other.values for other in sheet.of(array.view) if (other.nature, other.axes) == ("error", array.axes)), None
    )
    axes = part.add_subplot(xlabel=_meant(array))
    spread = None if error is None else error.flatten().numpy()
    axes.barh(range(len(labels)), values, color=_bar_colours(array, labels), xerr=spread)
    axes.set_yticks(range(len(labels)), [label.replace("_", " ") for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)  # not a margin: of many bars that would be several wide
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    if (values < 0).any():
        axes.axvline(0.0, color=GREY, linewidth=0.6)


def _bar_colours(array: Array, labels: Sequence[str]) -> list[str]:
    """Methods in the colours of their lines; of other numbers blue is above zero and orange below."""
    if array.axes[0].name == "method":
        return [_line(label, place)[0] for place, label in enumerate(labels)]
    return [ABOVE if value >= 0 else BELOW for value in array.values.flatten().tolist()]


def _meant(array: Array) -> str:
    """What the colours of bars mean; those of methods only tell them apart."""
    return "" if array.axes[0].name == "method" else signs(array)


def _line(method: str, place: int) -> tuple[str, str]:
    return (GREY, "") if method == "random" else LINES[place % len(LINES)]


def _beside(axes: Any) -> None:
    """A legend that covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
