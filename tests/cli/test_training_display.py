"""The live line: the speed of the recent past, the time left at that speed, each said once."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import ready, recipe
from torch import nn

from regard import api
from regard.api import TrainingRun
from regard.cli import training_display as watch
from regard.cli.train import train
from regard.cli.training_display import TrainingDisplay
from regard.data.store import TokenStore
from regard.tasks.translate import TranslationTask
from regard.training.loop import TrainingEvent


class Clock:
    """A board that is shown a run by hand: steps of 100 tokens, a log after each ten."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, compiled: bool) -> None:
        self.now = 1000.0
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)
        tables = recipe(folder, {"train": {"steps": 1000, "compiled": compiled}})
        run = TrainingRun(ready(tables, folder / "run"))
        self.progress = run.trainer.progress
        self.board = TrainingDisplay(run)

    def ten_steps(self, seconds: float) -> None:
        """They take so long; then they are logged."""
        self.now += seconds
        self.progress.step, self.progress.tokens = self.progress.step + 10, self.progress.tokens + 1000
        self.progress.seconds += seconds
        self.board.show_event(TrainingEvent("log", self.progress.step, {"loss": 1.5, "skipped": 0}))

    def validation(self, seconds: float) -> None:
        self.now += seconds


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]


def test_the_speed_is_that_of_the_recent_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(tmp_path, monkeypatch, compiled=False)
    clock.ten_steps(50)
    for _ in range(watch.N_RECENT_INTERVALS):
        clock.ten_steps(20)
    found = shown(capsys)
    assert found[0] == "step 10/1,000  loss 1.500  20 tokens/s  1:22:30 left"
    assert found[-1] == "step 110/1,000  loss 1.500  50 tokens/s  29:40 left"


def test_compilation_and_validation_do_not_count_as_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(tmp_path, monkeypatch, compiled=True)
    clock.ten_steps(300)
    clock.ten_steps(20)
    clock.validation(60)  # 3 seconds a step so far, beside the 2 of the step itself
    clock.ten_steps(20)
    assert shown(capsys) == [
        "step 10/1,000  loss 1.500",
        "step 20/1,000  loss 1.500  50 tokens/s  32:40 left",
        "step 30/1,000  loss 1.500  50 tokens/s  1:04:40 left",
    ]


@pytest.mark.parametrize(("device", "on"), [("auto", ""), ("cpu", " --device cpu")])
def test_commands_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], device: str, on: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["some where/regard", "train"])
    out = tmp_path / "my run"
    run = TrainingRun(ready(recipe(tmp_path, {"train": {"steps": 1}}), out))
    watch.train_and_display(run, device)
    regard, path = "'some where/regard'", f"'{out}'"
    assert capsys.readouterr().err.splitlines()[-1] == (
        f'use it: {regard} translate {path} "..."{on}        score it: {regard} evaluate {path} TEST{on}'
    )
    assert watch.resume_command(out, device) == f"{regard} train '{out}/config.toml' --out {path} --resume{on}"


def test_a_run_that_no_validation_gave_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Silent(TranslationTask):
        def compute_validation_metrics(
            self, model: nn.Module, store: TokenStore, items: np.ndarray, device: torch.device
        ) -> dict[str, float]:
            return {"bleu": math.nan}

    prepared = ready(recipe(tmp_path, {"train": {"steps": 1}}), tmp_path / "run")
    prepared.task = Silent(prepared.task.config, prepared.task.tokenizers)
    watch.train_and_display(TrainingRun(prepared))
    said = capsys.readouterr().err.splitlines()
    assert "done: no score, for no validation gave a number; the weights are those of step 1" in said
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["best"]["bleu"] is None


def test_a_real_run_says_how_long_it_will_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch.train_and_display(TrainingRun(ready(recipe(tmp_path), tmp_path / "run")))
    line = next(line for line in shown(capsys) if "tokens/s" in line)
    assert re.fullmatch(r"step 1/6  loss \d\.\d{3}  [\d,]+ tokens/s  \d:\d\d left", line)


def test_who_stops_before_the_first_step_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*given: object, **named: object) -> TrainingRun:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(["lm", "books.txt"])
    assert capsys.readouterr().err == "stopped before the first step; the same command begins again\n"


def test_score_on_a_sample_is_followed_by_the_score_on_all_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TranslationTask, "max_scored_examples", 3)
    run = TrainingRun(ready(recipe(tmp_path, {"train": {"steps": 1}}), tmp_path / "run"))
    n_all = len(run.prepared.valid_store)
    assert n_all > 3
    watch.train_and_display(run)
    printed = capsys.readouterr().err
    assert f"validation metrics on a sample of 3 of {n_all} pairs, drawn by hash; at the end on all of them" in printed
    assert re.search(rf"done: BLEU \S+ on all {n_all} pairs \(\S+ on the sample of 3\), ", printed)
