"""Checkpoints: all that is needed to resume after any interruption, and to average the last weights.

    train.safetensors   weights, optimiser state and, in the header, the `TrainingProgress`: one file, so consistent
    train.json          the same `TrainingProgress` as plain JSON, for people and for `regard info`
    snapshots/          the weights at the last validations, for averaging

Random states need no saving: every step seeds its generator by (seed, step), and the order of batches is a function of
(seed, epoch, position). A log longer than the checkpoint says is truncated when resuming. loop.py saves and
restores; resume.py compares the settings of the two sessions.
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
from regard.models.weights import collect_weights, load_weights, read_metadata, read_model_tensors, write_tensors
from regard.runs.run_directory import RunDirectory

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")
"""What Adam keeps of a weight."""
ADAGRAD_SUM = "sum_of_squares"
"""What row-wise Adagrad keeps of a table."""


@dataclass
class TrainingProgress:
    """Progress of training; `data` holds the digest of each token store, `stale` the validations since the best one."""

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
    """Reads and writes the checkpoint files of a run."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.checkpoint_path = run.path / "train.safetensors"
        self.snapshots_path = run.path / "snapshots"

    def save(self, progress: TrainingProgress, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Save a checkpoint; until its file is renamed, the previous one stays valid."""
        header = {"progress": json.dumps(progress.to_dict())}
        write_tensors(
            self.checkpoint_path,
            {**_add_prefix("model", collect_weights(model)), **_optimiser_state(model, optimiser)},
            header,
        )
        write_json(self.run.progress_path, progress.to_dict())
        self._prune_snapshots(progress.snapshots)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingProgress:
        """Load the last checkpoint into model and optimiser, and return its progress; a fresh one if there is none."""
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        tensors, header = read_model_tensors(self.checkpoint_path)
        with self._convert_mismatch_errors():
            progress = TrainingProgress.from_dict(json.loads(header["progress"]))
            _load_state(model, optimiser, tensors)
        return progress

    def read_progress(self) -> TrainingProgress:
        """Return the progress of the last checkpoint without loading its weights."""
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        with self._convert_mismatch_errors():
            return TrainingProgress.from_dict(json.loads(read_metadata(self.checkpoint_path)["progress"]))

    @contextmanager
    def _convert_mismatch_errors(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            problem = f"{self.checkpoint_path}: not a checkpoint of this run ({error!r})"
            raise CheckpointError(f"{problem}; restore it from a copy") from None

    def save_snapshot(self, step: int, model: nn.Module) -> None:
        """Save the weights of this step."""
        self.snapshots_path.mkdir(exist_ok=True)
        write_tensors(self._snapshot_path(step), collect_weights(model))

    def load_averaged_snapshots(self, steps: list[int], model: nn.Module) -> None:
        """Load the mean of the snapshots of these steps into the model."""
        load_weights(model, self._snapshot_path(steps[0]))
        mean = {name: weight.double() for name, weight in collect_weights(model).items()}
        for step in steps[1:]:
            for name, weight in read_model_tensors(self._snapshot_path(step))[0].items():
                mean[name] += weight
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(mean[name] / len(steps))

    def truncate_log(self, progress: TrainingProgress) -> None:
        """Delete the lines logged after the checkpoint: they will be logged again."""
        self.run.log_path.touch()
        if self.run.log_path.stat().st_size < progress.log_bytes:
            raise CheckpointError(f"{self.run.log_path}: shorter than the checkpoint says; restore it from a copy")
        os.truncate(self.run.log_path, progress.log_bytes)

    def _snapshot_path(self, step: int) -> Path:
        return self.snapshots_path / f"{step:08d}.safetensors"

    def _prune_snapshots(self, steps_to_keep: list[int]) -> None:
        paths_to_keep = {self._snapshot_path(step) for step in steps_to_keep}
        for path in self.snapshots_path.glob("*.safetensors"):
            if path not in paths_to_keep:
                path.unlink()


def _add_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _optimiser_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of the optimiser by its name and that of the weight."""
    state = {}
    for name, weight in model.named_parameters():
        for key in (*ADAM_STATE, ADAGRAD_SUM):
            if key in optimiser.state.get(weight, {}):
                state[f"{key}.{name}"] = optimiser.state[weight][key].detach().cpu().contiguous()
    return state


def _load_state(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(tensors[f"model.{name}"])
            keys = _state_keys(name, tensors)
            if keys and weight.requires_grad:  # a resumed run may freeze more than before
                optimiser.state[weight] = {key: tensors[f"{key}.{name}"].to(weight.device) for key in keys}


def _state_keys(name: str, tensors: dict[str, Tensor]) -> tuple[str, ...]:
    """Return what a checkpoint keeps of a weight's optimiser: Adam's state, the sum of row-wise Adagrad, or nothing."""
    if f"{ADAGRAD_SUM}.{name}" in tensors:
        return (ADAGRAD_SUM,)
    return ADAM_STATE if f"step.{name}" in tensors else ()
