"""Schedules of the learning rate and of the batch size, against hand-worked values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import ConfigError
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG
from regard.tasks.task import TrainingScale
from regard.training.defaults import complete_train_table
from regard.training.schedule import SCHEDULES, count_micro_batches, sum_micro_batches

SCALE, CPU = TrainingScale(1000, 20_000, 64, is_finetuning=False), torch.device("cpu")


def test_one_cycle_peaks_in_the_middle_unless_told_otherwise() -> None:
    table = complete_train_table({"steps": 40, "schedule": "one-cycle"}, SCALE, CPU)
    rates = [SCHEDULES["one-cycle"](step, 40, table["warmup"]) for step in range(1, 41)]
    assert (table["warmup"], rates.index(1.0)) == (20, 19)
    assert rates[9] == rates[29] == 0.5
    assert rates[-1] == 0
    given = {"steps": 40, "schedule": "one-cycle", "warmup": 4}
    assert complete_train_table(given, SCALE, CPU)["warmup"] == 4


def test_trapezoid_is_flat_and_decays_over_the_last_fifth() -> None:
    rates = [SCHEDULES["trapezoid"](step, 100, 10) for step in range(1, 101)]
    assert rates[4] == 0.5
    assert set(rates[9:80]) == {1.0}
    assert rates[89] == pytest.approx(0.5)
    assert rates[99] == 0


@pytest.mark.parametrize("batch_ramp", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("accumulate", [2, 5, 16])
def test_batches_grow_linearly_and_then_stay(accumulate: int, batch_ramp: float) -> None:
    train = replace(PLACEHOLDER_TRAIN_CONFIG, steps=50, accumulate=accumulate, batch_ramp=batch_ramp)
    sizes = [count_micro_batches(train, step) for step in range(1, 51)]
    n_ramp = round(batch_ramp * 50)
    assert sizes == [*(-(-accumulate * step // n_ramp) for step in range(1, n_ramp + 1)), *[accumulate] * (50 - n_ramp)]
    assert [sum_micro_batches(train, n) for n in range(51)] == [sum(sizes[:n]) for n in range(51)]


def test_a_single_micro_batch_cannot_grow() -> None:
    with pytest.raises(ConfigError, match=r"train\.batch_ramp: .* train\.accumulate = 1; set it"):
        replace(PLACEHOLDER_TRAIN_CONFIG, batch_ramp=0.5)
