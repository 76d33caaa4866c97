"""The optimiser and the learning rate as a pure function of the step: there is no scheduler state to save."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import groupby

import torch
from torch import nn


def build_adamw(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> torch.optim.AdamW:
    """Fused AdamW with the betas of Vaswani et al. 2017; vectors (biases, norms) do not decay.

    With `layer_decay` each layer learns that many times as fast as the one above it, the embeddings slowest.
    """
    n_layers = 1 + max((_layer_index(name) or 0 for name, _ in model.named_parameters()), default=0)

    def kind(named: tuple[str, nn.Parameter]) -> tuple[int, bool]:
        name, weight = named
        return _n_layers_above(name, n_layers) if layer_decay < 1 else 0, weight.ndim < 2

    groups = [
        {
            "params": [weight for _, weight in members],
            "weight_decay": 0.0 if vectors else weight_decay,
            "share": layer_decay**below,
        }
        for (below, vectors), members in groupby(sorted(model.named_parameters(), key=kind), key=kind)
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def _layer_index(name: str) -> int | None:
    """The number of the layer that a weight belongs to."""
    found = re.match(r"(?:encoder|decoder)\.(\d+)\.", name)
    return int(found[1]) if found else None


def _n_layers_above(name: str, n_layers: int) -> int:
    """How many layers lie above a weight: none above the heads, all above the embeddings."""
    layer = _layer_index(name)
    if layer is None:
        return n_layers + 1 if "embedding" in name.split(".")[0] else 0
    return n_layers - layer


def inverse_sqrt(step: int, steps: int, warmup: int) -> float:
    """SPEC 7.2's schedule with its highest value at 1: up to `warmup`, then down with the root of the step."""
    return min(step / warmup, math.sqrt(warmup / step)) if warmup else step**-0.5


def linear(step: int, steps: int, warmup: int) -> float:
    """Up to `warmup`, then straight down to 0 at the end."""
    return step / warmup if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))


def cosine(step: int, steps: int, warmup: int) -> float:
    """Up to `warmup`, then half a cosine down to 0 at the end."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))


def constant(step: int, steps: int, warmup: int) -> float:
    """Up to `warmup`, then the same."""
    return min(1.0, step / warmup) if warmup else 1.0


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
    "constant": constant,
}
"""The share of ``train.learning_rate`` at a step (counted from 1) of so many steps with so much warm-up."""


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    """Use this learning rate from the next step on."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate * group["share"]
