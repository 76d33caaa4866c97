"""Training for a time: the number of steps that fit into ``train.minutes``.

The speed of steps and of a validation is measured before the first step, on the run's own batches and with a learning
rate of 0, so that no weight changes. The number is written into config.toml: schedules depend on it, and a run that is
resumed keeps it. Called by loop.py when a run begins whose recipe gives minutes and no steps.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from regard.errors import ConfigError
from regard.runs.recipe import TrainConfig
from regard.tasks.task import TrainingBatch
from regard.training.schedule import sum_micro_batches
from regard.training.step import read_step_results

MEASURED_FRACTION, MAX_MEASURED_SECONDS = 0.02, 4.0
"""The speed is measured for this fraction of the minutes, but no longer than so many seconds."""

RESERVE = 0.02
"""The fraction of the minutes that is kept for checkpoints, and for a machine that slows down when it is warm."""

MAX_STEPS = 10**9


class Pace(NamedTuple):
    """Seconds of a micro-batch, its part of the optimiser step included, and of a validation."""

    micro_batch: float
    validation: float


def measured_seconds(minutes: float) -> float:
    """Return for how long the speed is measured."""
    return min(MAX_MEASURED_SECONDS, MEASURED_FRACTION * 60 * minutes)


def time_micro_batches(
    step: Callable[[Sequence[TrainingBatch], int], Tensor],
    batches: Iterator[TrainingBatch],
    group_size: int,
    seconds: float = 0.0,
) -> float:
    """Return the mean time of micro-batches, in groups of a size and for so many seconds at least."""
    start_time, elapsed, n_timed = time.perf_counter(), 0.0, 0
    while not n_timed or elapsed < seconds:
        results = [step([batch], batch.n_tokens) for batch in islice(batches, group_size)]
        n_timed += len(read_step_results(results))
        elapsed = time.perf_counter() - start_time
    return elapsed / n_timed


def choose_steps(minutes: float, pace: Pace, configure: Callable[[int], TrainConfig]) -> int:
    """Return the largest number of steps that end in time; `configure` returns the settings of a number of steps."""
    budget = 60 * minutes * (1 - RESERVE)

    def estimate_seconds(steps: int) -> float:
        train = configure(steps)
        n_validations = -(-steps // train.validate_every)
        return sum_micro_batches(train, steps) * pace.micro_batch + n_validations * pace.validation

    steps = bisect_right(range(1, MAX_STEPS), budget, key=estimate_seconds)
    if not steps:
        problem = f"train.minutes = {minutes:g}: one step with its validation takes {estimate_seconds(1):.1f} s"
        raise ConfigError(f"{problem}; give more minutes, or a smaller train.batch_tokens or model")
    return steps
