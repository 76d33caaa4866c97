"""Learning-rate schedules: pure functions of the step, so there is no scheduler state to save.

Each returns the fraction of ``train.learning_rate`` at a step, counted from 1. Called by loop.py before every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

SLANTED_RATIO = 32
"""The highest learning rate of `slanted_triangular` divided by the lowest (Howard and Ruder 2018, section 3.2)."""


def inverse_sqrt(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then decay with the square root of the step (Vaswani et al. 2017, eq. 3, with a peak of 1)."""
    return min(step / warmup, math.sqrt(warmup / step)) if warmup else step**-0.5


def linear(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then linear decay to 0 at the last step."""
    return step / warmup if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))


def cosine(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then half a cosine down to 0 at the last step."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))


def slanted_triangular(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up from 1/32, then linear decay to 1/32 at the last step (ULMFiT, Howard and Ruder 2018, eq. 3).

    Its ``cut`` is `warmup`, which is a tenth of the steps (``cut_frac``) in fine-tuning unless a recipe sets it.
    """
    p = step / warmup if step < warmup else 1 - (step - warmup) / max(1, steps - warmup)
    return (1 + max(0.0, p) * (SLANTED_RATIO - 1)) / SLANTED_RATIO


def constant(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then constant."""
    return min(1.0, step / warmup) if warmup else 1.0


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
    "slanted-triangular": slanted_triangular,
    "constant": constant,
}
"""Schedules by the name of ``train.schedule``; each takes the step, the number of steps and the warm-up steps."""

FINITE_SCHEDULES = ("linear", "cosine", "slanted-triangular")
"""Schedules that decay until the last step, so that ``train.steps`` changes the learning rate of every step."""
