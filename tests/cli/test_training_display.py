"""Display of a training run: recent speed, time left, an early estimate, and commands that can be copied."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import ready, recipe, trained
from torch import nn

from regard import api
from regard.api import TrainingRun
from regard.cli import training_display
from regard.cli.train import train
from regard.cli.training_display import TrainingDisplay
from regard.data.store import TokenStore
from regard.tasks.translate import TranslationTask
from regard.training.loop import TrainingEvent


class SimulatedRun:
    """A display that is shown simulated steps of 100 tokens each, by a simulated clock."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, compiled: bool) -> None:
        self.now = 1000.0
        monkeypatch.setattr(training_display.time, "monotonic", lambda: self.now)
        tables = recipe(folder, {"train": {"steps": 1000, "compiled": compiled}})
        run = TrainingRun(ready(tables, folder / "run"))
        self.progress = run.trainer.progress
        self.display = TrainingDisplay(run)

    def take_steps(self, n_steps: int, seconds: float, kind: str = "log") -> None:
        """Take steps that last `seconds` together, then report them."""
        self.now += seconds
        self.progress.step, self.progress.tokens = self.progress.step + n_steps, self.progress.tokens + 100 * n_steps
        self.progress.seconds += seconds
        self.display.show_event(TrainingEvent(kind, self.progress.step, {"loss": 1.5, "skipped": 0}))

    def validate(self, seconds: float) -> None:
        self.now += seconds


def progress_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]


def test_speed_is_that_of_recent_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = SimulatedRun(tmp_path, monkeypatch, compiled=False)
    simulated.take_steps(10, 50)
    for _ in range(training_display.N_RECENT_INTERVALS):
        simulated.take_steps(10, 20)
    lines = progress_lines(capsys)
    assert lines[0] == "step 10/1,000  loss 1.500  20 tokens/s  1:22:30 left"
    assert lines[-1] == "step 110/1,000  loss 1.500  50 tokens/s  29:40 left"


def test_compilation_and_validation_are_not_part_of_the_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = SimulatedRun(tmp_path, monkeypatch, compiled=True)
    simulated.take_steps(10, 300)
    simulated.take_steps(10, 20)
    simulated.validate(60)  # 2 s a step so far, beside the 2 s of the step itself
    simulated.take_steps(10, 20)
    assert progress_lines(capsys) == [
        "step 10/1,000  loss 1.500",
        "step 20/1,000  loss 1.500  50 tokens/s  32:40 left",
        "step 30/1,000  loss 1.500  50 tokens/s  1:04:40 left",
    ]


@pytest.mark.parametrize(("compiled", "first", "rest"), [(False, 1, 3), (True, 3, 5)], ids=["eager", "compiled"])
def test_time_is_estimated_from_the_first_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiled: bool,
    first: int,
    rest: int,
) -> None:
    """Warm-up, which compiles the model, is left out; the estimate is printed once."""
    simulated = SimulatedRun(tmp_path, monkeypatch, compiled=compiled)
    simulated.take_steps(first, 100, "progress")
    simulated.take_steps(rest, 0.4 * rest, "progress")
    simulated.take_steps(50, 20)
    left = round(0.4 * (1000 - first - rest) / 60)
    estimates = [line for line in capsys.readouterr().err.splitlines() if "to go" in line]
    assert estimates == [f"about {left} min to go (0.4 s a step, without validation)"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (42, "42 s"), (100, "2 min"), (5000, "83 min"), (9000, "2.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert training_display._describe_duration(seconds) == text


def test_progress_is_printed_every_ten_seconds_outside_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = SimulatedRun(tmp_path, monkeypatch, compiled=False)
    for _ in range(12):
        simulated.take_steps(1, 3, "progress")
    steps = [int(re.match(r"step (\d+)", line)[1]) for line in progress_lines(capsys)]  # type: ignore[index]
    assert steps == [1, 5, 9]


@pytest.mark.parametrize(("device", "option"), [("auto", ""), ("cpu", " --device cpu")])
def test_commands_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str, option: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["some where/regard", "train"])
    out = tmp_path / "my run"
    run = TrainingRun(ready(recipe(tmp_path, {"train": {"steps": 1}}), out))
    training_display.train_and_display(run, device)
    regard, path = "'some where/regard'", f"'{out}'"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f'use it: {regard} translate {path} "..."{option}        score it: {regard} evaluate {path} TEST{option}'
    )
    command = training_display.resume_command(out, device)
    assert command == f"{regard} train '{out}/config.toml' --out {path} --resume{option}"


def test_run_without_a_finite_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class NanTask(TranslationTask):
        def compute_validation_metrics(
            self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
        ) -> dict[str, float]:
            return {"bleu": math.nan}

    prepared = ready(recipe(tmp_path, {"train": {"steps": 1}}), tmp_path / "run")
    prepared.task = NanTask(prepared.task.config, prepared.task.tokenizers)
    training_display.train_and_display(TrainingRun(prepared))
    lines = capsys.readouterr().err.splitlines()
    assert "done: no validation gave a score; the weights are those of step 1" in lines
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["best"]["bleu"] is None


def test_real_run_prints_speed_time_left_and_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training_display.train_and_display(TrainingRun(ready(recipe(tmp_path), tmp_path / "run")))
    lines = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(r"step 1/6  loss \d\.\d{3}  [\d,]+ tokens/s  \d:\d\d left", line) for line in lines)
    assert (
        sum(
            re.fullmatch(r"about \d+ s to go \(.* m?s a step, without validation\)", line) is not None for line in lines
        )
        == 1
    )


def test_resumed_run_prints_where_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    longer = recipe(tmp_path, {"train": {"steps": 12}})
    training_display.train_and_display(TrainingRun(ready(longer, tmp_path / "run", resume=True)))
    lines = capsys.readouterr().err.splitlines()
    assert "changed    train.steps 6 -> 12" in lines
    assert any(line.startswith("training   from step 6 to 12, ") for line in lines)


def test_interruption_before_the_first_step_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> TrainingRun:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(["lm", "books.txt"])
    assert capsys.readouterr().err == "stopped before the first step; the same command begins again\n"


def test_score_on_a_sample_is_followed_by_the_score_on_all_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TranslationTask, "max_scored_examples", 3)
    run = TrainingRun(ready(recipe(tmp_path, {"train": {"steps": 1}}), tmp_path / "run"))
    n_valid = len(run.prepared.valid_store)
    assert n_valid > 3
    training_display.train_and_display(run)
    printed = capsys.readouterr().err
    assert (
        f"validation metrics on a sample of 3 of {n_valid} pairs, drawn by hash; at the end on all of them" in printed
    )
    assert re.search(rf"done: BLEU \S+ on all {n_valid} pairs \(\S+ on the sample of 3\), ", printed)
