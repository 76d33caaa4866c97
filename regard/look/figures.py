"""Figures for paper and screen; they need the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from regard.errors import MissingExtra


def heat_map(
    weights: Float[Tensor, "rows columns"], rows: Sequence[str], columns: Sequence[str], title: str, path: Path
) -> Path:
    """Draw weights between two texts: what each row looked at, darker for more."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a figure", "plot") from None
    size = (max(4.5, 2.2 + 0.5 * len(columns)), 2.2 + 0.42 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.suptitle(title, fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention")
    figure.savefig(path, dpi=150)
    return path
