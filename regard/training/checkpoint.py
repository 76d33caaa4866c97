"""What is needed to go on after any interruption, and to average the last weights.

    train.safetensors   weights, optimiser moments and, in its header, the `Progress`: one file, so never torn
    train.json          the same `Progress`, for people
    snapshots/          the weights at the last validations, for averaging

Randomness needs no saving: every step draws from generators seeded by (seed, step), and the order of batches is a
function of (seed, epoch, position). A log longer than the checkpoint knows of is cut back when resuming.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.order import Cursor
from regard.disk import write_json
from regard.errors import CheckpointError
from regard.models.weights import collect_weights, load_weights, read_metadata, read_tensors, write_tensors
from regard.runs.run_directory import RunDirectory

ADAM_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class TrainingProgress:
    """How far training has come; `data` holds the digest of each store learned from."""

    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    averaged: int = 0
    stale: int = 0
    norm: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    nll_since_log: float = 0.0
    tokens_since_log: int = 0
    log_bytes: int = 0
    snapshots: list[int] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    finished: bool = False

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> TrainingProgress:
        return cls(**{**saved, "cursor": Cursor.from_dict(saved["cursor"])})


class CheckpointManager:
    """The checkpoint files of a run."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.checkpoint_path = run.path / "train.safetensors"
        self.snapshots_path = run.path / "snapshots"

    def save(self, progress: TrainingProgress, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Commit this moment; whatever happens before the rename, the previous checkpoint holds."""
        header = {"progress": json.dumps(progress.to_dict())}
        write_tensors(
            self.checkpoint_path,
            {**_add_prefix("model", collect_weights(model)), **_adam_state(model, optimiser)},
            header,
        )
        write_json(self.run.progress_path, progress.to_dict())
        self._prune_snapshots(progress.snapshots)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingProgress:
        """The last committed moment, put into model and optimiser; a fresh start where there is none."""
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        found, header = read_tensors(self.checkpoint_path)
        with self._convert_mismatch_errors():
            progress = TrainingProgress.from_dict(json.loads(header["progress"]))
            _load_state(model, optimiser, found)
        return progress

    def read_progress(self) -> TrainingProgress:
        """How far the last committed moment is, without its weights."""
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        with self._convert_mismatch_errors():
            return TrainingProgress.from_dict(json.loads(read_metadata(self.checkpoint_path)["progress"]))

    @contextmanager
    def _convert_mismatch_errors(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            found = f"{self.checkpoint_path}: not a checkpoint of this run ({error!r})"
            raise CheckpointError(f"{found}; restore it from a copy") from None

    def save_snapshot(self, step: int, model: nn.Module) -> None:
        """Keep the weights of this step."""
        self.snapshots_path.mkdir(exist_ok=True)
        write_tensors(self._snapshot_path(step), collect_weights(model))

    def load_averaged_snapshots(self, steps: list[int], model: nn.Module) -> None:
        """Fill the model with the mean of the snapshots of these steps."""
        load_weights(model, self._snapshot_path(steps[0]))
        mean = {name: weight.double() for name, weight in collect_weights(model).items()}
        for step in steps[1:]:
            for name, weight in read_tensors(self._snapshot_path(step))[0].items():
                mean[name] += weight
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(mean[name] / len(steps))

    def truncate_log(self, progress: TrainingProgress) -> None:
        """Forget what was logged after the checkpoint: it will be logged again."""
        self.run.log_path.touch()
        if self.run.log_path.stat().st_size < progress.log_bytes:
            raise CheckpointError(f"{self.run.log_path}: shorter than the checkpoint says; restore it from a copy")
        os.truncate(self.run.log_path, progress.log_bytes)

    def _snapshot_path(self, step: int) -> Path:
        return self.snapshots_path / f"{step:08d}.safetensors"

    def _prune_snapshots(self, steps_to_keep: list[int]) -> None:
        wanted = {self._snapshot_path(step) for step in steps_to_keep}
        for path in self.snapshots_path.glob("*.safetensors"):
            if path not in wanted:
                path.unlink()


def _add_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _adam_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts by the names of the weights they belong to."""
    kept = {}
    for name, weight in model.named_parameters():
        for key in (*ADAM_MOMENTS, "step"):
            if key in optimiser.state[weight]:
                kept[f"{key}.{name}"] = optimiser.state[weight][key].detach().cpu().contiguous()
    return kept


def _load_state(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(tensors[f"model.{name}"])
            if f"step.{name}" in tensors:
                state = {key: tensors[f"{key}.{name}"].to(weight.device) for key in ADAM_MOMENTS}
                optimiser.state[weight] = {"step": tensors[f"step.{name}"].to(weight.device), **state}
