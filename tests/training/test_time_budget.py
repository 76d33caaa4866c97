"""`train.minutes`: the steps that fit are chosen once, are those of the schedules, and change no weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import CPU, abandon_after, contents, merged, ready, recipe, trained

from regard import config
from regard.errors import ConfigError
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, TrainConfig
from regard.training import time_budget
from regard.training.loop import Trainer
from regard.training.prepare import prepare_run
from regard.training.time_budget import RESERVE, Pace, choose_steps, time_micro_batches

TIMED: config.Tables = {"train": {"minutes": 0.02, "schedule": "cosine"}}


def timed_recipe(folder: Path, *changes: config.Tables) -> config.Tables:
    """Return the tiny recipe with minutes instead of steps."""
    tables = merged(recipe(folder), TIMED, *changes)
    for key in ("steps", "warmup"):
        del tables["train"][key]
    return tables


@pytest.fixture
def chosen_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine be so fast that seven steps fit, whatever it does meanwhile."""
    monkeypatch.setattr("regard.training.loop.choose_steps", lambda *_: 7)


def settings(**changes: object) -> Callable[[int], TrainConfig]:
    return lambda steps: replace(PLACEHOLDER_TRAIN_CONFIG, steps=steps, validate_every=100, **changes)  # type: ignore[arg-type]


def test_steps_and_validations_fill_the_minutes() -> None:
    """1,000 steps of 50 ms and 10 validations of a second."""
    minutes = 60.01 / 60 / (1 - RESERVE)
    assert choose_steps(minutes, Pace(0.05, 1.0), settings()) == 1000
    assert choose_steps(minutes, Pace(0.05, 1.0), settings(accumulate=4)) == 285
    growing = choose_steps(minutes, Pace(0.05, 1.0), settings(accumulate=4, batch_ramp=1.0))
    assert growing == pytest.approx(60 / (2.5 * 0.05 + 0.01), rel=0.03)


def test_too_few_minutes_for_one_step() -> None:
    with pytest.raises(
        ConfigError, match=r"train\.minutes = 0\.01: one step with its validation takes 3\.0 s; give more"
    ):
        choose_steps(0.01, Pace(1.0, 2.0), settings())


def test_a_timed_run_equals_one_of_as_many_steps(tmp_path: Path, chosen_steps: None) -> None:
    """Measuring changes no weight, optimiser state or order, and schedules know the steps chosen."""
    trained(timed_recipe(tmp_path), tmp_path / "timed")
    tables = merged(timed_recipe(tmp_path), {"train": {"steps": 7}})
    trained(tables, tmp_path / "counted")
    assert "\nsteps = 7\nminutes = 0.02\n" in (tmp_path / "timed/config.toml").read_text()
    assert contents(tmp_path / "timed") == contents(tmp_path / "counted")


def test_steps_beside_minutes_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready(merged(timed_recipe(tmp_path), {"train": {"steps": 7}}), tmp_path / "both")
    assert "warning: train.minutes has no effect, because train.steps = 7 is given" in capsys.readouterr().err


def test_a_resumed_run_keeps_the_steps_that_were_chosen(
    tmp_path: Path, chosen_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = timed_recipe(tmp_path)
    trained(tables, tmp_path / "whole")
    abandon_after(tables, tmp_path / "left", events=5)
    monkeypatch.setattr("regard.training.loop.choose_steps", lambda *_: 1000)
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")
    other = merged(tables, {"train": {"minutes": 3.0}})
    with pytest.raises(ConfigError, match=r"train\.minutes = 3\.0, but the run in .* has 0\.02"):
        ready(other, tmp_path / "left", resume=True)


def test_a_run_killed_while_it_is_measured_begins_anew(
    tmp_path: Path, chosen_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = timed_recipe(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.loop.time_micro_batches", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Trainer(prepare_run(tables, tmp_path / "run", CPU, where="test"))
    assert not (tmp_path / "run/config.toml").exists()
    trained(tables, tmp_path / "run")
    trained(tables, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def interrupt(*_: object) -> float:
    raise KeyboardInterrupt


def test_the_speed_is_measured_in_groups_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the steps move, half a second each."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time_budget, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def step(batches: list[SimpleNamespace], n_tokens: int) -> torch.Tensor:
        assert n_tokens == batches[0].n_tokens
        clock.now += 0.5
        return torch.zeros(5)

    batches = (SimpleNamespace(n_tokens=n) for n in count())
    assert time_micro_batches(step, batches, 4, seconds=5.0) == 0.5
    assert next(batches).n_tokens == 12, "two groups take 4 s, three of them 6 s"
