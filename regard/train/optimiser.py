"""The optimiser and the learning rate as a pure function of the step: there is no scheduler state to save."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn


def adamw(parameters: Iterable[nn.Parameter], weight_decay: float) -> torch.optim.AdamW:
    """Fused AdamW with the betas of Vaswani et al. 2017; vectors (biases, norms) do not decay."""
    every = list(parameters)
    groups = [
        {"params": [p for p in every if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in every if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


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
        group["lr"] = learning_rate
