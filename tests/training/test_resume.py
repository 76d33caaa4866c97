"""Resuming: a run killed at any moment and resumed equals an uninterrupted one bit by bit: weights, moments and log.

Processes are really killed (SIGKILL): before each change of a file, while a checkpoint is being written, and between
steps. Other interruptions are simulated by abandoning the loop.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import Forks
from tiny_runs import abandon_after, contents, merged, ready, recipe, trained, written

from regard import config
from regard.errors import ConfigError
from regard.runs.run_directory import RunDirectory
from regard.training.loop import Trainer
from regard.training.thread_count import use_threads

EVERYTHING: config.Tables = {
    "model": {"dropout": 0.2},
    "train": {"steps": 4, "validate_every": 2, "save_every": 3, "accumulate": 2, "average": 2, "patience": 5},
}
"""Several epochs, gradient accumulation, dropout, averaging and early stopping in a run of four steps."""


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        time.sleep(0.001)
        assert time.monotonic() < end, "timed out"


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("parity", [0, 1], ids=["even", "odd"])
def test_killed_before_each_change_of_a_file(forks: Forks, tmp_path: Path, parity: int) -> None:
    """From the first file of the tokenizer to the last of the run: every state that the disk can be in."""
    recipe_file = written(tmp_path, recipe(tmp_path, EVERYTHING, n_pairs=10, n_valid=2))
    assert forks.run("train", recipe_file, "--out", tmp_path / "whole", "--device", "cpu").status == 0
    whole = contents(tmp_path / "whole")
    for moment in count(2 - parity, 2):
        out = tmp_path / f"killed-{moment}"
        command = ["train", recipe_file, "--out", out, "--device", "cpu"]
        killed = forks.run(*command, kill_at=moment, within=out)
        ended = forks.run(*command, "--resume") if killed.status else killed
        assert ended.status == 0, f"killed before change {moment}: {ended.err}"
        assert contents(out) == whole, f"killed before change {moment}"
        if killed.status == 0:
            break
        assert killed.status == -signal.SIGKILL
    assert moment > 30, moment


def test_killed_repeatedly(forks: Forks, tmp_path: Path) -> None:
    """Every attempt makes progress, so that the run ends."""
    recipe_file = written(tmp_path, recipe(tmp_path, EVERYTHING, n_pairs=10, n_valid=2))
    command = ["train", recipe_file, "--device", "cpu", "--resume", "--out"]
    assert forks.run(*command, tmp_path / "whole").status == 0
    out = tmp_path / "killed"
    for times in count(1):
        ended = forks.run(*command, out, kill_at=21, within=out)
        if ended.status == 0:
            break
        assert ended.status == -signal.SIGKILL
        assert times < 10
    assert times > 1
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("size", [100, 1_000, 10_000, 100_000, 1_000_000])
def test_killed_while_a_file_is_being_written(forks: Forks, tmp_path: Path, size: int) -> None:
    """The first file that grows beyond the size ends there: a recipe, a store, a tokenizer, a checkpoint."""
    large = {"model": {"d_model": 256, "d_ff": 512}}
    recipe_file = written(tmp_path, recipe(tmp_path, EVERYTHING, large))
    command = ["train", recipe_file, "--device", "cpu", "--resume", "--out"]
    out = tmp_path / "killed"
    assert forks.run(*command, out, kill_beyond=size).status == -signal.SIGXFSZ
    assert list(out.rglob("*.partial*")), "not killed in the middle of a write"
    assert forks.run(*command, out).status == 0
    assert forks.run(*command, tmp_path / "whole").status == 0
    assert contents(out) == contents(tmp_path / "whole")
    assert not list(out.rglob("*.partial"))


def test_command_killed_between_steps(forks: Forks, tmp_path: Path) -> None:
    """The command that a user types, in a process of its own, killed from outside."""
    tables = recipe(tmp_path, {"train": {"steps": 150, "save_every": 4, "validate_every": 50, "average": 3}})
    recipe_file = written(tmp_path, tables)
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "regard", "train", str(recipe_file), "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        wait_for(lambda: lines(out / "log.jsonl") >= 6)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert 4 <= json.loads((out / "train.json").read_text())["step"] < 150
    assert forks.run("train", recipe_file, "--device", "cpu", "--resume", "--out", out).status == 0
    assert forks.run("train", recipe_file, "--device", "cpu", "--out", tmp_path / "whole").status == 0
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "kill"])
def test_signal_saves_a_checkpoint_and_prints_the_resume_command(forks: Forks, tmp_path: Path, number: int) -> None:
    tables = recipe(tmp_path, {"train": {"steps": 150, "save_every": 200, "validate_every": 150}})
    recipe_file = written(tmp_path, tables)
    out = tmp_path / "interrupted run"
    process = forks.start("train", recipe_file, "--device", "cpu", "--out", out)
    wait_for(lambda: lines(out / "log.jsonl") >= 3)
    os.kill(process, number)
    ended = forks.wait()
    assert ended.status == 128 + number
    assert ended.out == ""
    step = json.loads((out / "train.json").read_text())["step"]
    assert 3 <= step < 150
    last_line = ended.err.strip().splitlines()[-1]
    command = f"train '{out}/config.toml' --out '{out}' --resume --device cpu"
    assert last_line == f"saved at step {step}; to continue: {shlex.quote(sys.executable)} -m regard {command}"
    assert RunDirectory(out).load()
    again = forks.run(*shlex.split(last_line.partition(" -m regard ")[2]))
    assert again.status == 0
    assert again.out == f"{out}\n"
    assert forks.run("train", recipe_file, "--device", "cpu", "--out", tmp_path / "whole").status == 0
    assert contents(out) == contents(tmp_path / "whole")


VARIANTS: dict[str, config.Tables] = {
    "plain": {},
    "everything": EVERYTHING,
    "gradient accumulation": {"train": {"accumulate": 2, "log_every": 2}},
    "growing batches": {"train": {"accumulate": 2, "batch_ramp": 0.7, "schedule": "one-cycle"}},
    "dropout and r-drop": {"model": {"dropout": 0.3}, "task": {"r_drop": 1.0}},
    "bfloat16": {"train": {"precision": "bfloat16", "schedule": "cosine"}},
    "separate vocabularies": {"tokenizer": {"joint": False, "vocabulary": 262}},
    "few checkpoints": {"train": {"save_every": 100, "validate_every": 100, "log_every": 4}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_abandoned_run_is_resumed_exactly(tmp_path: Path, name: str) -> None:
    tables = recipe(tmp_path, VARIANTS[name])
    trained(tables, tmp_path / "whole")
    for events in (1, 4, 2):
        abandon_after(tables, tmp_path / "left", events)
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


def test_resumed_with_another_number_of_threads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only two steps, and no validation: threads that share a busy core wait for each other."""
    tables = recipe(tmp_path, {"train": {"steps": 100, "save_every": 1, "validate_every": 100}})
    with use_threads(2):
        abandon_after(tables, tmp_path / "whole", events=4)
        abandon_after(tables, tmp_path / "left", events=2)
    capfd.readouterr()
    abandon_after(tables, tmp_path / "left", events=2)
    assert json.loads((tmp_path / "left/train.json").read_text())["step"] == 2
    assert capfd.readouterr().err == "threads    2, as before, for the same bits; train.threads=1 would give others\n"
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")
    assert torch.get_num_threads() == 1
    ready(merged(tables, {"train": {"threads": 1}}), tmp_path / "left", resume=True)
    changed = "changed    train.threads 2 -> 1; from step 2 on this run differs from an uninterrupted one\n"
    assert capfd.readouterr().err == changed


def test_steps_count_from_the_start_when_resuming_with_more(tmp_path: Path) -> None:
    short, long = recipe(tmp_path), recipe(tmp_path, {"train": {"steps": 12}})
    trained(short, tmp_path / "run")
    events = trained(long, tmp_path / "run", resume=True)
    assert (events[0].step, events[-1].step) == (7, 12)
    trained(long, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def stop_at(step: int, tables: config.Tables, out: Path) -> None:
    """Begin a run, and interrupt it at a step."""
    trainer = Trainer(ready(tables, out))
    for event in trainer.train():
        if event.step == step:
            trainer.request_stop()


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "stopped"])
def test_fewer_steps_than_taken_are_refused(forks: Forks, tmp_path: Path, finished: bool) -> None:
    tables, out = recipe(tmp_path), tmp_path / "run"
    if finished:
        trained(tables, out)
    else:
        stop_at(6, merged(tables, {"train": {"steps": 12}}), out)
    before = files_of(out)
    ended = forks.run("train", out / "config.toml", "--out", out, "--resume", "--set", "train.steps=5")
    assert (ended.status, ended.out) == (2, "")
    problem = f"{out}/config.toml: train.steps = 5, but the run in {out} is at step 6 already"
    assert ended.err == f"error: {problem}; give 6 to end it there, or more to continue\n"
    assert files_of(out) == before


def test_steps_in_an_edited_config_are_checked_too(tmp_path: Path) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().partition("\n")[2].replace("steps = 6", "steps = 4"))
    with pytest.raises(ConfigError, match=r"train\.steps = 4, but the run in .* is at step 6 already"):
        ready({}, tmp_path / "run", resume=True)


def test_run_ends_at_the_step_it_has_reached(tmp_path: Path) -> None:
    tables, out = recipe(tmp_path, {"train": {"steps": 12}}), tmp_path / "run"
    stop_at(6, tables, out)
    events = trained(merged(tables, {"train": {"steps": 6}}), out, resume=True)
    assert [(event.kind, event.step) for event in events] == [("end", 6)]


def test_no_change_is_printed_of_a_run_that_has_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    before = files_of(tmp_path / "run")
    assert trained(recipe(tmp_path, {"train": {"clip": 0.5}}), tmp_path / "run", resume=True) == []
    assert capfd.readouterr().err == ""
    assert files_of(tmp_path / "run") == before


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_changed_learning_rate_is_printed_and_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trained(recipe(tmp_path), tmp_path / "run")
    changed = recipe(tmp_path, {"train": {"steps": 8, "learning_rate": 1e-3}})
    prepared = ready(changed, tmp_path / "run", resume=True)
    assert capfd.readouterr().err.splitlines() == [
        "changed    train.steps 6 -> 8, train.learning_rate 0.003 -> 0.001; "
        "from step 6 on this run differs from an uninterrupted one"
    ]
    list(Trainer(prepared).train())
    records = [line for line in log_of(tmp_path / "run") if "changed" in line]
    assert records == [{"step": 6, "changed": {"train.learning_rate": [0.003, 0.001]}}]
    assert RunDirectory(tmp_path / "run").read_config().train.learning_rate == 1e-3
    trained(changed, tmp_path / "run", resume=True)
    assert capfd.readouterr().err == ""


def test_record_of_changed_settings_survives_a_kill(tmp_path: Path) -> None:
    """The record is saved with a checkpoint, so that truncating the log at the next resume keeps it."""
    trained(recipe(tmp_path), tmp_path / "run")
    changed = recipe(tmp_path, {"train": {"steps": 12, "save_every": 12, "validate_every": 12, "clip": 0.5}})
    abandon_after(changed, tmp_path / "run", events=2)
    trained(changed, tmp_path / "run", resume=True)
    records = [line for line in log_of(tmp_path / "run") if "changed" in line]
    assert records == [{"step": 6, "changed": {"train.clip": [1.0, 0.5]}}]


@pytest.mark.parametrize(
    ("schedule", "recorded"), [("inverse-sqrt", False), ("constant", False), ("linear", True), ("cosine", True)]
)
def test_more_steps_are_recorded_only_if_the_schedule_depends_on_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], schedule: str, recorded: bool
) -> None:
    tables = recipe(tmp_path, {"train": {"schedule": schedule, "steps": 3}})
    trained(tables, tmp_path / "run")
    trained(merged(tables, {"train": {"steps": 4, "patience": 3}}), tmp_path / "run", resume=True)
    err = capfd.readouterr().err
    assert "changed    train.steps 3 -> 4, train.patience 0 -> 3" in err
    assert ("differs from an uninterrupted one" in err) == recorded
    records = [line["changed"] for line in log_of(tmp_path / "run") if "changed" in line]
    assert records == ([{"train.steps": [3, 4]}] if recorded else [])


def test_settings_changed_before_the_first_checkpoint_are_not_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ready(recipe(tmp_path), tmp_path / "run")
    changed = recipe(tmp_path, {"train": {"learning_rate": 1e-3}})
    trained(changed, tmp_path / "run", resume=True)
    assert "uninterrupted" not in capfd.readouterr().err
    trained(changed, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_full_disk_leaves_the_previous_checkpoint(forks: Forks, tmp_path: Path) -> None:
    """The limit allows the weights to be written but not the next checkpoint, which holds Adam's moments too."""
    tables = recipe(tmp_path, {"train": {"steps": 8, "save_every": 2, "validate_every": 8}})
    recipe_file = written(tmp_path, tables)
    out = tmp_path / "full"
    command = ["train", recipe_file, "--device", "cpu", "--out"]
    assert forks.run(*command, tmp_path / "whole").status == 0
    log = (tmp_path / "whole" / "log.jsonl").read_bytes()
    interrupted = forks.run(*command, out, "--set", "train.steps=4")
    assert interrupted.status == 0
    before = contents(out)
    size = (out / "train.safetensors").stat().st_size
    full = forks.run(*command, out, "--resume", limit=size - 1)
    assert full.status == 2
    assert full.out == ""
    errors = [line for line in full.err.splitlines() if line.startswith("error:")]
    assert errors == [full.err.splitlines()[-1]]
    assert errors[0].startswith(f"error: {out}: cannot be written (")
    assert errors[0].endswith("; the previous checkpoint is intact: make room, then continue with --resume")
    after = contents(out)
    assert {k: v for k, v in after.items() if k not in ("log", "config")} == {
        k: v for k, v in before.items() if k not in ("log", "config")
    }
    assert not list(out.rglob("*.partial"))
    assert RunDirectory(out).load()
    assert forks.run(*command, out, "--resume").status == 0
    assert (out / "log.jsonl").read_bytes() != log  # it was validated at step 4 as well
    assert contents(out)["model"] == contents(tmp_path / "whole")["model"]


def test_disk_full_from_the_beginning(forks: Forks, tmp_path: Path) -> None:
    recipe_file = written(tmp_path, recipe(tmp_path))
    for limit, fix in (
        (3000, "make room, or choose another --out"),  # smaller than the tokenizer
        (20_000, "no checkpoint was written yet: make room, then continue with --resume"),  # than the first checkpoint
    ):
        out = tmp_path / f"full-{limit}"
        ended = forks.run("train", recipe_file, "--device", "cpu", "--out", out, limit=limit)
        assert ended.status == 2
        assert ended.err.splitlines()[-1].startswith(f"error: {out}: cannot be written (")
        assert ended.err.splitlines()[-1].endswith(f"); {fix}")
        assert "Traceback" not in ended.err
        assert forks.run("train", recipe_file, "--device", "cpu", "--out", out, "--resume").status == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"dropout": 0.2}},
        {"train": {"precision": "bfloat16", "accumulate": 2}},
        {"task": {"r_drop": 1.0}, "model": {"dropout": 0.2, "positions": "rotary", "activation": "gated-gelu"}},
    ],
    ids=["float32", "bfloat16", "r-drop"],
)
def test_compiled_equals_eager(forks: Forks, tmp_path: Path, changes: config.Tables) -> None:
    """The whole step is one graph, traced and then run without a C++ compiler."""
    recipe_file = written(tmp_path, recipe(tmp_path, changes))
    command = ["train", recipe_file, "--device", "cpu", "--out"]
    assert forks.run(*command, tmp_path / "eager").status == 0
    compiled = forks.run(*command, tmp_path / "compiled", "--set", "train.compiled=true", trace=True)
    assert compiled.status == 0, compiled.err
    assert "could not be compiled" not in compiled.err
    one, other = contents(tmp_path / "eager"), contents(tmp_path / "compiled")
    del one["config"], other["config"]
    assert one == other
