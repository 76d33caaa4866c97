"""Checkpoints: all that is needed to resume after any interruption, and to average the last weights.

    train.safetensors   weights, optimiser state and, in the header, the `TrainingProgress`: one file, so consistent
    train.json          the same `TrainingProgress` as plain JSON, for people and for `regard info`
    snapshots/          the weights at the last validations, for averaging

Random states need no saving: every step seeds its generator by (seed, step), and the order of batches is a function of
(seed, epoch, position). A log longer than the checkpoint says is truncated when resuming; what is not longer must have
the checksum that the checkpoint stores. `verify` checks all files before a run is resumed. loop.py saves and restores;
resume.py compares the settings of the two sessions.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.order import Cursor
from regard.disk import RESTORE, json_text, write_json_with_checksum
from regard.errors import CheckpointError
from regard.models.weights import collect_weights, load_weights, read_model_tensors, write_tensors
from regard.progress import warn
from regard.runs.recipe import TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import check_log

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")
"""The optimiser state that Adam keeps for a weight."""
ADAGRAD_SUM = "sum_of_squares"
"""The optimiser state that row-wise Adagrad keeps for a table."""


@dataclass
class TrainingProgress:
    """Progress of training; `data` holds the digest of each token store, `stale` the validations since the best one.

    `start_scores` are those of the model that training starts from, where they are taken, `best_scores` the best ones.

    `log_crc32` is the CRC-32 of the log's first `log_bytes`; unknown to checkpoints of earlier versions.
    """

    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_loss: float | None = None
    best_step: int = 0
    start_scores: dict[str, float] = field(default_factory=dict)
    best_scores: dict[str, float] = field(default_factory=dict)
    averaged: int = 0
    stale: int = 0
    norm: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    nll_since_log: float = 0.0
    tokens_since_log: int = 0
    log_bytes: int = 0
    log_crc32: int | None = None
    snapshots: list[int] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    finished: bool = False

    def should_stop_early(self, train: TrainConfig) -> bool:
        """Return True if the last `train.patience` validations brought no better score (early stopping)."""
        return bool(train.patience) and self.stale >= train.patience

    def has_ended(self, train: TrainConfig) -> bool:
        """Return True if training finished, and these settings leave no further step to take."""
        return self.finished and (self.step >= train.steps or self.should_stop_early(train))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> TrainingProgress:
        return cls(**{**saved, "cursor": Cursor.from_dict(saved["cursor"])})


class CheckpointManager:
    """Reads and writes the checkpoint files of a run."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.checkpoint_path = run.checkpoint_path
        self.snapshots_path = run.snapshots_path
        self._last_identity = self._identify()

    def save(self, progress: TrainingProgress, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Save a checkpoint; until its file is renamed, the previous one stays valid."""
        header = {"progress": json.dumps(progress.to_dict())}
        write_tensors(
            self.checkpoint_path,
            {**_add_prefix("model", collect_weights(model)), **_optimiser_state(model, optimiser)},
            header,
        )
        self._last_identity = self._identify()
        write_json_with_checksum(self.run.progress_path, progress.to_dict())
        self._prune_snapshots(progress.snapshots)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> TrainingProgress:
        """Load the last checkpoint into model and optimiser, and return its progress; a fresh one if there is none."""
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        self._last_identity = self._identify()
        tensors, header = read_model_tensors(self.checkpoint_path, fix=self._checkpoint_fix)
        with self._convert_mismatch_errors():
            progress = TrainingProgress.from_dict(json.loads(header["progress"]))
            _load_state(model, optimiser, tensors)
        return progress

    def exists(self) -> bool:
        """Return True if there is a checkpoint."""
        return self.checkpoint_path.exists()

    def is_last_checkpoint(self) -> bool:
        """Return True if the checkpoint on disk is the one that was last saved or restored here."""
        return self._identify() == self._last_identity

    def _identify(self) -> tuple[int, int] | None:
        """Return the identity of the checkpoint file, which differs for every checkpoint."""
        stat = self.checkpoint_path.stat() if self.checkpoint_path.exists() else None
        return (stat.st_ino, stat.st_mtime_ns) if stat is not None else None

    def verify(self, n_averaged: int) -> TrainingProgress:
        """Check all files of a run that is to be resumed, and return the progress of the last checkpoint."""
        self.run.check_task_files()
        if not self.checkpoint_path.exists():
            return TrainingProgress()
        with self._convert_mismatch_errors():
            header = read_model_tensors(self.checkpoint_path, fix=self._checkpoint_fix)[1]
            progress = TrainingProgress.from_dict(json.loads(header["progress"]))
        self.run.read_progress()
        self.run.read_metrics()
        if self.run.weights_path.exists():
            read_model_tensors(self.run.weights_path, fix=self._weights_fix(progress))
        self._verify_snapshots(progress.snapshots[-n_averaged:] if n_averaged > 1 else [])
        if self.run.log_path.exists():
            check_log(self.run.log_path, self.run.log_path.read_bytes(), progress.log_bytes, progress.log_crc32)
        return progress

    def _verify_snapshots(self, steps: list[int]) -> None:
        for n_newer, step in enumerate(reversed(steps)):
            path = self._snapshot_path(step)
            fix = f"{RESTORE}, or average fewer: --set train.average={max(1, n_newer)}"
            if not path.exists():
                raise CheckpointError(f"{path}: missing, but the average at the end needs it; {fix}")
            read_model_tensors(path, fix=fix)

    @property
    def _checkpoint_fix(self) -> str:
        """The end of a message about a damaged checkpoint."""
        if not self.run.weights_path.exists():
            return RESTORE
        usable = f"the best weights so far, in {self.run.weights_path.name}, can still be used"
        return f"{RESTORE}; {usable}, also to start another run (--from {self.run.path})"

    def _weights_fix(self, progress: TrainingProgress) -> str:
        """Return the end of a message about damaged weights; a snapshot may hold the same ones."""
        if progress.best_step in progress.snapshots and not progress.averaged:
            return f"copy {self._snapshot_path(progress.best_step)} over it, which holds the same weights"
        return self.run.weights_fix

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
        path = self.run.log_path
        if progress.log_bytes and not path.exists():
            warn(f"{path}: missing; the log begins again after step {progress.step:,}")
            progress.log_bytes, progress.log_crc32 = 0, None
        path.touch()
        progress.log_crc32 = check_log(path, path.read_bytes(), progress.log_bytes, progress.log_crc32)
        os.truncate(path, progress.log_bytes)

    def append_to_log(self, progress: TrainingProgress, values: dict[str, Any]) -> None:
        """Log values at the current step."""
        line = f"{json_text({'step': progress.step, **values})}\n".encode()
        with self.run.log_path.open("ab") as log:
            log.write(line)
        progress.log_bytes += len(line)
        progress.log_crc32 = zlib.crc32(line, progress.log_crc32 or 0)

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
    """Return the optimiser state of a weight in a checkpoint: Adam's, the sum of row-wise Adagrad, or nothing."""
    if f"{ADAGRAD_SUM}.{name}" in tensors:
        return (ADAGRAD_SUM,)
    return ADAM_STATE if f"step.{name}" in tensors else ()
