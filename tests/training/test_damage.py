"""Damaged and missing files of a run: noticed before the first step, and what the message suggests can be done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import contents, ready, recipe, trained

from regard.config import Tables
from regard.errors import CheckpointError
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import read_log
from regard.training.loop import Trainer

AVERAGING: Tables = {"train": {"average": 3, "validate_every": 2, "save_every": 2}}


@pytest.fixture(scope="module")
def half_trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps that was interrupted after the checkpoint of step 4; the best weights are those of step 4."""
    folder = tmp_path_factory.mktemp("half")
    trainer = Trainer(ready(recipe(folder, AVERAGING), folder / "run"))
    for event in trainer.train():
        if (event.kind, event.step) == ("save", 4):
            trainer.request_stop()
    assert trainer.progress.snapshots == [2, 4]
    assert trainer.progress.best_step == 4
    return folder


@pytest.fixture
def folder(half_trained: Path, tmp_path: Path) -> Path:
    """A copy of the half-trained run, to be damaged."""
    shutil.copytree(half_trained / "run", tmp_path / "run")
    for path in half_trained.glob("*.*"):
        shutil.copy2(path, tmp_path)
    return tmp_path


def flip_bit(path: Path, position: int = -9) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def resume(folder: Path, **train: Any) -> None:
    tables = recipe(folder, AVERAGING, {"train": train})
    tables["data"] = {}  # the text was copied
    list(Trainer(ready(tables, folder / "run", resume=True)).train())


def refusal(use: Callable[[], object]) -> str:
    with pytest.raises(CheckpointError) as caught:
        use()
    assert "\n" not in str(caught.value)
    return str(caught.value)


DAMAGED = "damaged (its checksum does not match)"


def test_damaged_checkpoint_names_the_weights_that_are_left(folder: Path) -> None:
    flip_bit(folder / "run/train.safetensors")
    assert refusal(lambda: resume(folder)) == (
        f"{folder}/run/train.safetensors: {DAMAGED}; restore it from a copy; the best weights so far, in "
        f"model.safetensors, can still be used, also to start another run (--from {folder}/run)"
    )
    assert RunDirectory(folder / "run").load()
    other = recipe(folder, AVERAGING, {"model": {"start": str(folder / "run")}})
    other["model"] = {"start": str(folder / "run")}
    other["tokenizer"] = {}
    assert trained(other, folder / "other")[-1].step == 6


def test_damaged_weights_can_be_copied_from_a_snapshot(folder: Path) -> None:
    weights, snapshot = folder / "run/model.safetensors", folder / "run/snapshots/00000004.safetensors"
    flip_bit(weights)
    expected = f"{weights}: {DAMAGED}; copy {snapshot} over it, which holds the same weights"
    assert refusal(lambda: resume(folder)) == expected
    shutil.copy(snapshot, weights)
    resume(folder)
    trained(recipe(folder, AVERAGING), folder / "whole")
    assert {**contents(folder / "run"), "config": b""} == {**contents(folder / "whole"), "config": b""}


def test_damaged_weights_are_replaced_by_those_of_the_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume(folder, average=1)
    run = RunDirectory(folder / "run")
    flip_bit(run.weights_path)
    fix = "delete it and resume the training, which replaces it by those of its last checkpoint"
    assert refusal(run.load) == f"{run.weights_path}: {DAMAGED}; restore it from a copy, or {fix}"
    run.weights_path.unlink()
    resume(folder, average=1)
    warning = f"warning: {run.weights_path}: missing; the weights of step 6 replace it, until there are better ones"
    assert warning in capsys.readouterr().err.splitlines()
    last = load_file(run.checkpoint_path)
    assert all(torch.equal(last[f"model.{name}"], weight) for name, weight in load_file(run.weights_path).items())
    assert run.read_metrics()["best"]["bleu"] is None


@pytest.mark.parametrize("step", [2, 4])
@pytest.mark.parametrize("is_missing", [True, False])
def test_snapshot_is_checked_before_the_first_step(folder: Path, step: int, is_missing: bool) -> None:
    path = folder / f"run/snapshots/{step:08d}.safetensors"
    before = contents(folder / "run")
    if is_missing:
        path.unlink()
    else:
        flip_bit(path)
    problem = "missing, but the average at the end needs it" if is_missing else DAMAGED
    fix = "restore it from a copy, or average fewer: --set train.average=1"
    assert refusal(lambda: resume(folder)) == f"{path}: {problem}; {fix}"
    assert {**contents(folder / "run"), "snapshots": {}} == {**before, "snapshots": {}}
    resume(folder, average=1)
    assert RunDirectory(folder / "run").read_progress()["averaged"] == 0


def test_average_of_fewer_leaves_the_oldest_snapshots_out(folder: Path) -> None:
    resume(folder)
    (folder / "run/snapshots/00000002.safetensors").unlink()
    assert refusal(lambda: resume(folder, steps=7)).endswith("average fewer: --set train.average=2")
    resume(folder, average=2, steps=7, validate_every=100)
    assert RunDirectory(folder / "run").read_progress()["snapshots"] == [6, 7]


def test_damaged_log_can_be_deleted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(folder / "run")
    flip_bit(run.log_path)
    expected = f"{run.log_path}: {DAMAGED}; restore it from a copy, or delete it: nothing else depends on it"
    assert refusal(lambda: resume(folder)) == expected
    assert refusal(lambda: read_log(run)) == expected
    run.log_path.unlink()
    resume(folder)
    warning = f"warning: {run.log_path}: missing; the log begins again after step 4"
    assert warning in capsys.readouterr().err.splitlines()
    assert [line["step"] for line in read_log(run)] == [5, 6, 6]
    trained(recipe(folder, AVERAGING), folder / "whole")
    assert contents(folder / "run")["model"] == contents(folder / "whole")["model"]


def test_lines_after_the_checkpoint_are_read_and_then_logged_again(folder: Path) -> None:
    run = RunDirectory(folder / "run")
    n_lines = len(read_log(run))
    with run.log_path.open("a") as log:
        log.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    assert read_log(run)[-1] == {"step": 5, "loss": 1.0}
    resume(folder)
    assert read_log(run)[n_lines]["loss"] != 1.0


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("train.json", "delete it; it is a copy of what train.safetensors says"),
        ("metrics.json", "delete it; `regard evaluate` measures the scores again"),
    ],
)
def test_damaged_summaries_can_be_deleted(folder: Path, name: str, fix: str) -> None:
    resume(folder)
    path = folder / "run" / name
    text = path.read_text()
    path.write_text(text.replace("4", "5", 1))
    assert refusal(lambda: resume(folder)) == f"{path}: {DAMAGED}; {fix}"
    path.write_text(text[:-20])
    assert refusal(lambda: resume(folder)).startswith(f"{path}: damaged, or not JSON (")
    path.unlink()
    resume(folder, steps=7)
    assert json.loads(path.read_text())["checksum"].startswith("crc32:")


def test_files_of_earlier_versions_have_no_checksums(folder: Path) -> None:
    """Resumed, the run is the same as one of today."""
    run = RunDirectory(folder / "run")
    for path in (run.weights_path, *run.snapshots_path.iterdir()):
        save_file(load_file(path), path)
    progress = run.read_progress()
    del progress["log_crc32"]
    save_file(load_file(run.checkpoint_path), run.checkpoint_path, {"progress": json.dumps(progress)})
    run.progress_path.write_text(json.dumps(progress))
    config_lines = run.config_path.read_text().splitlines(keepends=True)
    run.config_path.write_text("".join(line for line in config_lines if not line.startswith("#")))
    assert run.load()
    assert read_log(run)
    resume(folder)
    trained(recipe(folder, AVERAGING), folder / "whole")
    assert {**contents(folder / "run"), "config": b"", "model": b"", "snapshots": {}} == {
        **contents(folder / "whole"),
        "config": b"",
        "model": b"",
        "snapshots": {},
    }
    assert json.loads(run.progress_path.read_text())["checksum"]


def test_edited_config_says_which_line_to_delete(folder: Path) -> None:
    run = RunDirectory(folder / "run")
    text = run.config_path.read_text()
    run.config_path.write_text(text.replace("patience = 0", "patience = 7"))
    fix = "if you edited it, delete its first line; otherwise restore it from a copy"
    assert refusal(run.read_config) == f"{run.config_path}: {DAMAGED}; {fix}"
    run.config_path.write_text(run.config_path.read_text().partition("\n")[2])
    assert run.read_config().train.patience == 7
    flip_bit(run.path / "tokenizer.json")
    replaced = "if you replaced it yourself, delete the lines of config.toml that begin with #"
    assert refusal(run.load) == f"{run.path}/tokenizer.json: {DAMAGED}; restore it from a copy; {replaced}"
