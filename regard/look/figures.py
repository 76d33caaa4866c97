"""Figures for paper and screen, from tensors alone; they need the extra `plot`.

The suffix of the path says the form: .png, .svg or .pdf. Colours can be told apart by the colour-blind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.disk import write_aside
from regard.errors import MissingExtra


def heat_map(
    weights: Float[Tensor, "rows columns"],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    path: Path,
    label: str = "attention",
) -> Path:
    """Draw weights between two texts: what each row looked at, darker for more; an empty text gives an empty map."""
    figure = new_figure(max(4.5, 2.2 + 0.5 * len(columns)), 2.2 + 0.42 * len(rows))
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy() if weights.numel() else np.zeros((1, 1)), cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(columns)), plain(columns), rotation=50, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), plain(rows))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.suptitle(*plain([title]), fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    figure.savefig(path, dpi=150)
    return path


def position_map(table: Float[Tensor | np.ndarray, "T D"], path: str | Path, title: str = "") -> Path:
    """Draw the vectors P that stand for positions (SPEC 2.6): a row for each, red above zero and blue below."""
    values = torch.as_tensor(table).detach().cpu().float().numpy()
    n_positions, d_model = values.shape
    limit = float(np.abs(values).max(initial=0.0)) or 1.0
    figure = new_figure(6.5, 3.4)
    axes = figure.add_subplot(xlabel="dimension", ylabel="position")
    image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.locator_params(integer=True)
    axes.set_title(title or f"position vectors: {n_positions} positions, {d_model} dimensions", fontsize=9)
    figure.colorbar(image, ax=axes, label="value")
    figure.savefig(path, dpi=300)
    return Path(path)


class Curve(NamedTuple):
    """A line over x and, where its ends are given, a band around it."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """Curves by name, over the same axes; `levels` are dotted lines across, `marks` dashed ones upright."""

    title: str
    curves: Mapping[str, Curve]
    levels: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)


def curves(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    limits: tuple[float, float] | None = None,
) -> Path:
    """Draw curves with their bands, a panel beside another; a name has the same colour and marker in all of them.

    The file is written whole or not at all. `limits` are those of y.
    """
    n_columns = len(panels) if len(panels) <= 3 else 2
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(max(4.2, 3.2 * n_columns), 2.5 * n_rows + 0.5)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, panel, names)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel(xlabel, fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel, fontsize=9)
    if limits is not None:
        grid[0, 0].set_ylim(*limits)
    entries = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    n_beside = max(1, int(figure.get_figwidth() / (0.6 + 0.07 * max(map(len, entries), default=0))))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=n_beside, frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=9)
    whole = Path(path)
    write_aside(whole, lambda aside: figure.savefig(aside, format=whole.suffix.removeprefix("."), dpi=300))
    return whole


LINES = [
    *(("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D")),
    *(("#E69F00", "v"), ("#56B4E9", "P"), ("#000000", "X"), ("#999999", "*")),
]
"""Colours that the colour-blind can tell apart (Okabe and Ito 2008), each with a marker for print in grey."""


def _draw_panel(axes: Any, panel: Panel, names: Sequence[str]) -> None:
    for name, (x, y, low, high) in panel.curves.items():
        place = names.index(name)
        colour, marker = LINES[place % len(LINES)]
        size = max(3.5, 8 - 1.5 * place)  # markers at the same place stay visible, one inside another
        axes.plot(x, y, color=colour, marker=marker, markersize=size, markeredgecolor="white", label=name)
        if len(low):
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    for name, level in panel.levels.items():
        axes.axhline(level, color="#666666", linestyle=":", linewidth=1, label=name)
    for name, mark in panel.marks.items():
        axes.axvline(mark, color="#666666", linestyle="--", linewidth=1, label=name)
    axes.set_title(panel.title, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.get_major_locator().set_params(integer=True)


def plain(texts: Iterable[str]) -> list[str]:
    """Texts to be drawn as they are: matplotlib would read what stands between two dollars as mathematics."""
    return [text.replace("$", r"\$") for text in texts]


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a figure", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")
