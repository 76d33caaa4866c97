"""Schedules against their formulas, and AdamW against its plain definition."""

from __future__ import annotations

import math
from typing import get_args, get_type_hints

import pytest
import torch
from encoders import small, vocabulary
from torch import nn
from torch.testing import assert_close

from regard.data.labels import Labels
from regard.runs.recipe import TrainConfig
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.training.optimiser import build_adamw, set_learning_rate
from regard.training.schedule import SCHEDULES


def test_inverse_sqrt_is_the_schedule_of_vaswani_et_al() -> None:
    """Vaswani et al. 2017, eq. 3: a peak of (d warmup)^-0.5 gives d^-0.5 min(step^-0.5, step warmup^-1.5)."""
    d, warmup = 512, 4000
    peak = (d * warmup) ** -0.5
    for step in (1, 10, 3999, 4000, 4001, 50_000):
        expected = d**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert peak * SCHEDULES["inverse-sqrt"](step, 100_000, warmup) == pytest.approx(expected, rel=1e-12)


def test_every_schedule_of_a_recipe_has_a_function() -> None:
    assert set(get_args(get_type_hints(TrainConfig)["schedule"])) == SCHEDULES.keys()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_schedules_stay_between_0_and_1_with_the_peak_after_warmup(name: str, warmup: int) -> None:
    fractions = [SCHEDULES[name](step, 50, warmup) for step in range(1, 51)]
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert max(fractions) == pytest.approx(1.0, abs=0.021)  # without warm-up, linear has begun to fall at step 1
    if warmup:
        assert fractions[warmup - 1] == 1.0
        assert fractions[:warmup] == pytest.approx([step / warmup for step in range(1, warmup + 1)])


def test_decay_after_warmup() -> None:
    assert SCHEDULES["linear"](30, 50, 10) == pytest.approx(0.5)
    assert SCHEDULES["linear"](50, 50, 10) == 0.0
    assert SCHEDULES["cosine"](20, 50, 10) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert SCHEDULES["cosine"](50, 50, 10) == pytest.approx(0.0, abs=1e-12)
    assert SCHEDULES["constant"](49, 50, 10) == 1.0
    assert SCHEDULES["inverse-sqrt"](40, 50, 10) == 0.5


@pytest.mark.parametrize("name", SCHEDULES)
def test_warmup_longer_than_the_run_only_rises(name: str) -> None:
    assert [SCHEDULES[name](step, 3, 10) for step in (1, 2, 3)] == pytest.approx([0.1, 0.2, 0.3])


def test_adamw_equals_its_definition_and_vectors_do_not_decay() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    before = {name: weight.detach().clone().double() for name, weight in layer.named_parameters()}
    optimiser = build_adamw(layer, weight_decay=0.1)
    set_learning_rate(optimiser, 0.01)
    gradients = [{name: torch.randn_like(w) for name, w in layer.named_parameters()} for _ in range(3)]
    for gradient in gradients:
        for name, weight in layer.named_parameters():
            weight.grad = gradient[name].clone()
        optimiser.step()
    for name, weight in layer.named_parameters():
        expected = before[name]
        first = second = torch.zeros_like(expected)
        for t, gradient in enumerate((g[name].double() for g in gradients), start=1):
            expected = expected * (1 - 0.01 * (0.1 if name == "weight" else 0.0))
            first, second = 0.9 * first + 0.1 * gradient, 0.98 * second + 0.02 * gradient**2
            expected = expected - 0.01 * (first / (1 - 0.9**t)) / ((second / (1 - 0.98**t)).sqrt() + 1e-9)
        assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-7)


def test_layer_decay_lowers_the_learning_rate_of_lower_layers() -> None:
    task = ClassificationTask(ClassifyConfig(), vocabulary(), Labels(("a", "b")))
    model = small(task)
    optimiser = build_adamw(model, 0.1, layer_decay=0.5)
    set_learning_rate(optimiser, 1.0)
    rate = {id(weight): group["lr"] for group in optimiser.param_groups for weight in group["params"]}
    rates = {name: rate[id(weight)] for name, weight in model.named_parameters()}
    assert rates["heads.label.weight"] == rates["heads.pooler.dense.bias"] == 1.0
    assert rates["encoder.1.attention.output.weight"] == 0.5
    assert rates["encoder.0.feed_forward.up_projection.bias"] == 0.25
    assert {rates[name] for name in rates if name.startswith("embedding.")} == {0.125}
    even = build_adamw(model, 0.1)
    assert [group["lr_scale"] for group in even.param_groups] == [1.0, 1.0]
    assert [group["weight_decay"] for group in even.param_groups] == [0.1, 0.0]
