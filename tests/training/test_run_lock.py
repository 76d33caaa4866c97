"""One training at a time in a run directory, from preparation to the last file; reading stays possible."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forks import Forks
from tiny_runs import CPU, contents, recipe, trained, written

from regard.api.training_run import TrainingRun
from regard.errors import CheckpointError, ConfigError, InputError
from regard.runs.directory_lock import LOCK_FILE
from regard.runs.run_directory import RunDirectory
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun, prepare_run


def prepare(folder: Path, *, resume: bool = False) -> PreparedRun:
    return prepare_run(recipe(folder), folder / "run", CPU, where="test", resume=resume)


def test_second_training_is_refused_and_changes_nothing(forks: Forks, tmp_path: Path) -> None:
    """In processes of their own: one trains, the other is refused whether it resumes the run or begins one."""
    trained(recipe(tmp_path), tmp_path / "whole")
    command = ["train", written(tmp_path, recipe(tmp_path)), "--device", "cpu", "--out", tmp_path / "run"]
    events = Trainer(prepare(tmp_path)).train()
    for number, event in enumerate(events):
        if number in (0, 4):
            for option in ((), ("--resume",)):
                ended = forks.run(*command, *option)
                assert (ended.status, ended.out) == (2, "")
                line, *rest = ended.err.splitlines()
                assert line.startswith(f"error: {tmp_path}/run: in use by process {os.getpid()} on ")
                assert rest == []
        if event.kind == "save":
            assert RunDirectory(tmp_path / "run").load()
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert not (tmp_path / "run" / LOCK_FILE).exists()
    assert forks.run(*command, "--resume").status == 0


def test_lock_is_held_from_preparation_to_the_last_event(tmp_path: Path) -> None:
    prepared = prepare(tmp_path)
    with pytest.raises(InputError, match="in use by process"):
        prepare(tmp_path, resume=True)
    for _ in Trainer(prepared).train():
        assert (tmp_path / "run" / LOCK_FILE).exists()
    assert prepare(tmp_path, resume=True)


def test_failed_preparation_frees_the_directory(tmp_path: Path) -> None:
    tables = recipe(tmp_path, {"model": {"d_model": 15}})
    for _ in range(2):
        with pytest.raises(ConfigError):
            prepare_run(tables, tmp_path / "run", CPU, where="test")
        assert not (tmp_path / "run").exists()


def test_closed_run_can_be_resumed(tmp_path: Path) -> None:
    runs = [TrainingRun(prepare(tmp_path))]
    runs[0].close()
    runs.append(TrainingRun(prepare(tmp_path, resume=True)))
    events = iter(runs[1])
    next(events)
    with pytest.raises(InputError, match="in use by process"):
        prepare(tmp_path, resume=True)
    runs[1].close()
    trained(recipe(tmp_path), tmp_path / "run", resume=True)
    trained(recipe(tmp_path), tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_run_that_was_trained_elsewhere_meanwhile_is_not_continued(tmp_path: Path) -> None:
    trainer = Trainer(prepare(tmp_path))
    for event in trainer.train():
        if event.kind == "save":
            trainer.request_stop()
    trained(recipe(tmp_path), tmp_path / "run", resume=True)
    before = contents(tmp_path / "run")
    with pytest.raises(
        CheckpointError, match="run: was trained further by another process in the meantime; resume the run again"
    ):
        list(trainer.train())
    assert contents(tmp_path / "run") == before


def test_interrupted_run_can_be_continued_by_the_same_trainer(tmp_path: Path) -> None:
    trainer = Trainer(prepare(tmp_path))
    for _ in trainer.train():
        trainer.request_stop()
    list(trainer.train())
    trained(recipe(tmp_path), tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_temporary_files_of_killed_processes_are_removed_once_the_lock_is_held(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"train": {"average": 2}}), tmp_path / "run")
    run = tmp_path / "run"
    left = [run / ".regard-a1b2.partial", run / "snapshots/.regard-c3_d.partial", run / "store/.train.e4f5.partial"]
    kept = [run / "notes.partial", run / ".regard-notes"]
    for directory in (*left, *kept):
        directory.mkdir()
        (directory / "train.safetensors").write_bytes(b"half")
    assert RunDirectory(run).load()
    assert all(directory.exists() for directory in left)
    other = RunDirectory(run)
    other.lock.acquire()
    with pytest.raises(InputError):
        prepare(tmp_path, resume=True)
    assert all(directory.exists() for directory in left)
    other.lock.release()
    trained(recipe(tmp_path, {"train": {"average": 2}}), run, resume=True)
    assert not any(directory.exists() for directory in left)
    assert all(directory.exists() for directory in kept)
