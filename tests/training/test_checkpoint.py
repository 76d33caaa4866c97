"""Checkpoints: restored bit by bit; foreign or damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

from regard.data.order import Cursor
from regard.errors import CheckpointError
from regard.runs.run_directory import RunDirectory
from regard.training.checkpoint import CheckpointManager, TrainingProgress
from regard.training.optimiser import build_adamw, set_learning_rate


def make_model_and_optimiser(seed: int = 0, width: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimiser = build_adamw(model, weight_decay=0.1)
    set_learning_rate(optimiser, 0.01)
    return model, optimiser


def take_steps(model: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        model(x).square().sum().backward()
        optimiser.step()


def saved(folder: Path, step: int = 3) -> tuple[CheckpointManager, TrainingProgress]:
    model, optimiser = make_model_and_optimiser()
    take_steps(model, optimiser, range(step))
    progress = TrainingProgress(step=step, cursor=Cursor(1, 0, 2), best=0.1 + 0.2, nll_since_log=1 / 3, log_bytes=0)
    checkpoints = CheckpointManager(RunDirectory(folder))
    checkpoints.save(progress, model, optimiser)
    return checkpoints, progress


def test_restored_checkpoint_continues_exactly(tmp_path: Path) -> None:
    checkpoints, progress = saved(tmp_path)
    model, optimiser = make_model_and_optimiser(seed=9)
    assert checkpoints.restore(model, optimiser) == progress
    take_steps(model, optimiser, range(3, 6))
    whole, whole_optimiser = make_model_and_optimiser()
    take_steps(whole, whole_optimiser, range(6))
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), whole.parameters(), strict=True))


def test_progress_is_readable_json(tmp_path: Path) -> None:
    checkpoints, progress = saved(tmp_path)
    saved_progress = json.loads(checkpoints.run.progress_path.read_text())
    assert saved_progress.pop("checksum").startswith("crc32:")
    assert TrainingProgress.from_dict(saved_progress) == progress
    assert checkpoints.run.read_progress() == saved_progress


def test_checkpoint_before_the_first_step_has_no_moments(tmp_path: Path) -> None:
    checkpoints, progress = saved(tmp_path, step=0)
    assert not any(name.startswith("exp_avg") for name in load_file(checkpoints.checkpoint_path))
    model, optimiser = make_model_and_optimiser()
    assert checkpoints.restore(model, optimiser) == progress
    take_steps(model, optimiser, range(1))


def test_missing_checkpoint_is_a_fresh_start(tmp_path: Path) -> None:
    assert CheckpointManager(RunDirectory(tmp_path)).restore(*make_model_and_optimiser()) == TrainingProgress()


@pytest.mark.parametrize(
    "damage", ["no progress", "other names", "other shape", "cut short", "progress of another kind"]
)
def test_foreign_or_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    checkpoints, _ = saved(tmp_path)
    tensors, header = load_file(checkpoints.checkpoint_path), {"progress": json.dumps(TrainingProgress().to_dict())}
    if damage == "no progress":
        save_file(tensors, checkpoints.checkpoint_path)
    elif damage == "other names":
        save_file({f"x.{name}": tensor for name, tensor in tensors.items()}, checkpoints.checkpoint_path, header)
    elif damage == "other shape":
        model, optimiser = make_model_and_optimiser(width=7)
        checkpoints.save(TrainingProgress(), model, optimiser)
    elif damage == "cut short":
        checkpoints.checkpoint_path.write_bytes(checkpoints.checkpoint_path.read_bytes()[:-1])
    else:
        save_file(tensors, checkpoints.checkpoint_path, {"progress": '{"epochs": 3}'})
    with pytest.raises(CheckpointError) as caught:
        checkpoints.restore(*make_model_and_optimiser())
    assert str(caught.value).startswith(f"{checkpoints.checkpoint_path}: ")
    assert "\n" not in str(caught.value)


def test_snapshot_average_is_the_mean_and_changes_no_checkpoint(tmp_path: Path) -> None:
    checkpoints, _ = saved(tmp_path)
    models = [make_model_and_optimiser(seed)[0] for seed in range(3)]
    for step, model in enumerate(models):
        checkpoints.save_snapshot(step, model)
    averaged, _ = make_model_and_optimiser(seed=7)
    checkpoints.load_averaged_snapshots([0, 1, 2], averaged)
    for weights in zip(averaged.parameters(), *(model.parameters() for model in models), strict=True):
        mean = sum(weight.double() for weight in weights[1:]) / 3
        assert_close(weights[0], mean.float(), rtol=0, atol=0)


def test_old_snapshots_are_pruned_after_the_checkpoint_is_complete(tmp_path: Path) -> None:
    checkpoints, _ = saved(tmp_path)
    model, optimiser = make_model_and_optimiser()
    for step in (1, 2, 3):
        checkpoints.save_snapshot(step, model)
    assert len(list(checkpoints.snapshots_path.iterdir())) == 3
    checkpoints.save(TrainingProgress(snapshots=[2, 3]), model, optimiser)
    assert sorted(path.name for path in checkpoints.snapshots_path.iterdir()) == [
        "00000002.safetensors",
        "00000003.safetensors",
    ]


def test_longer_log_is_truncated_and_shorter_log_refused(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(RunDirectory(tmp_path))
    checkpoints.truncate_log(TrainingProgress())
    assert checkpoints.run.log_path.read_bytes() == b""
    checkpoints.run.log_path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    checkpoints.truncate_log(TrainingProgress(log_bytes=12))
    assert checkpoints.run.log_path.read_bytes() == b'{"step": 1}\n'
    with pytest.raises(CheckpointError, match=r"log.jsonl: shorter than the checkpoint says; restore it from a copy, "):
        checkpoints.truncate_log(TrainingProgress(log_bytes=13))


@pytest.mark.parametrize(
    ("progress", "is_copy"),
    [
        (TrainingProgress(best_step=4, snapshots=[2, 4]), True),
        (TrainingProgress(best_step=3, snapshots=[2, 4]), False),
        (TrainingProgress(best_step=4, snapshots=[2, 4], averaged=2), False),
        (TrainingProgress(best_step=3, snapshots=[2, 4], averaged=2), False),
    ],
)
def test_snapshot_replaces_damaged_weights_only_if_it_holds_the_same(
    progress: TrainingProgress, is_copy: bool, tmp_path: Path
) -> None:
    checkpoints = CheckpointManager(RunDirectory(tmp_path))
    copied = f"copy {tmp_path}/snapshots/00000004.safetensors over it, which holds the same weights"
    assert checkpoints._weights_fix(progress) == (copied if is_copy else checkpoints.run.weights_fix)
