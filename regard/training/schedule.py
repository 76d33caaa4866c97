"""Schedules of the learning rate and of the batch size: pure functions of the step, so there is no state to save.

Those of the learning rate return the fraction of ``train.learning_rate`` at a step, counted from 1; the batch-size ramp
returns micro-batches. Called by loop.py before every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from regard.runs.recipe import TrainConfig

SLANTED_RATIO = 32
"""The highest learning rate of `slanted_triangular` divided by the lowest (Howard and Ruder 2018, section 3.2)."""

COOLDOWN_FRACTION = 0.2
"""The fraction of the steps over which `trapezoid` decays."""


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


def trapezoid(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, constant, then linear decay to 0 over the last fifth (Zhai et al. 2022; Haegele et al. 2024)."""
    cooldown = min(COOLDOWN_FRACTION * steps, steps - warmup)
    return min(constant(step, steps, warmup), max(0, steps - step) / cooldown if cooldown > 0 else 1.0)


def constant(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then constant."""
    return min(1.0, step / warmup) if warmup else 1.0


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "inverse-sqrt": inverse_sqrt,
    "linear": linear,
    "one-cycle": linear,
    "cosine": cosine,
    "slanted-triangular": slanted_triangular,
    "trapezoid": trapezoid,
    "constant": constant,
}
"""Schedules by the name of ``train.schedule``; each takes the step, the number of steps and the warm-up steps.

``one-cycle`` is ``linear`` with a warm-up of half the steps unless a recipe sets another (Smith and Topin 2018).
"""

FINITE_SCHEDULES = ("linear", "one-cycle", "cosine", "slanted-triangular", "trapezoid")
"""Schedules that decay until the last step, so that ``train.steps`` changes the learning rate of every step."""


def count_micro_batches(train: TrainConfig, step: int) -> int:
    """Return the micro-batches of a step, counted from 1.

    They grow linearly from one to ``train.accumulate`` over the first ``train.batch_ramp`` of the steps (Geiping and
    Goldstein 2023, section 4.3).
    """
    ramp_steps = _count_ramp_steps(train)
    return train.accumulate if step >= ramp_steps else math.ceil(train.accumulate * step / ramp_steps)


def sum_micro_batches(train: TrainConfig, n_steps: int) -> int:
    """Return the micro-batches of the first `n_steps` steps together."""
    ramp_steps = _count_ramp_steps(train)
    # A step has at most k of them up to the step `ramp_steps * k // accumulate`.
    last_steps = (ramp_steps * k // train.accumulate for k in range(1, train.accumulate))
    return train.accumulate * n_steps - sum(min(n_steps, last) for last in last_steps)


def _count_ramp_steps(train: TrainConfig) -> int:
    return round(train.batch_ramp * train.steps)
