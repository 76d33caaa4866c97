"""Figures for paper and screen, from tensors alone; they need the extra `plot`.

The suffix of the path says the form: .png, .svg or .pdf. Colours can be told apart by the colour-blind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

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
    figure = _figure(max(4.5, 2.2 + 0.5 * len(columns)), 2.2 + 0.42 * len(rows))
    axes = figure.add_subplot()
    image = axes.imshow(weights.numpy() if weights.numel() else np.zeros((1, 1)), cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    figure.suptitle(title, fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    figure.savefig(path, dpi=150)
    return path


def position_map(table: Float[Tensor | np.ndarray, "T D"], path: str | Path, title: str = "") -> Path:
    """Draw the vectors P that stand for positions (SPEC 2.6): a row for each, red above zero and blue below."""
    values = torch.as_tensor(table).detach().cpu().float().numpy()
    n_positions, d_model = values.shape
    limit = float(np.abs(values).max(initial=0.0)) or 1.0
    figure = _figure(6.5, 3.4)
    axes = figure.add_subplot(xlabel="dimension", ylabel="position")
    image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axes.locator_params(integer=True)
    axes.set_title(title or f"position vectors: {n_positions} positions, {d_model} dimensions", fontsize=9)
    figure.colorbar(image, ax=axes, label="value")
    figure.savefig(path, dpi=300)
    return Path(path)


def _figure(width: float, height: float) -> Any:
    """An empty figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a figure", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")
