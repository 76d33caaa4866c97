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
from regard.models.weights import load_weights, read_header, read_tensors, weights_of, write_tensors
from regard.train.run import RunDirectory

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass
class Progress:
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

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Progress:
        return cls(**{**saved, "cursor": Cursor.from_dict(saved["cursor"])})


class Checkpoints:
    """The checkpoint files of a run."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.tensors = run.path / "train.safetensors"
        self.readable = run.path / "train.json"
        self.snapshots = run.path / "snapshots"

    def save(self, progress: Progress, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Commit this moment; whatever happens before the rename, the previous checkpoint holds."""
        header = {"progress": json.dumps(progress.to_json())}
        write_tensors(self.tensors, {**_prefixed("model", weights_of(model)), **_moments(model, optimiser)}, header)
        write_json(self.readable, progress.to_json())
        self._prune(progress.snapshots)

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
        """The last committed moment, put into model and optimiser; a fresh start where there is none."""
        if not self.tensors.exists():
            return Progress()
        found, header = read_tensors(self.tensors)
        with self._foreign_named():
            progress = Progress.from_json(json.loads(header["progress"]))
            _restore(model, optimiser, found)
        return progress

    def progress(self) -> Progress:
        """How far the last committed moment is, without its weights."""
        if not self.tensors.exists():
            return Progress()
        with self._foreign_named():
            return Progress.from_json(json.loads(read_header(self.tensors)["progress"]))

    @contextmanager
    def _foreign_named(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            found = f"{self.tensors}: not a checkpoint of this run ({error!r})"
            raise CheckpointError(f"{found}; restore it from a copy") from None

    def snapshot(self, step: int, model: nn.Module) -> None:
        """Keep the weights of this step."""
        self.snapshots.mkdir(exist_ok=True)
        write_tensors(self._snapshot(step), weights_of(model))

    def average(self, steps: list[int], model: nn.Module) -> None:
        """Fill the model with the mean of the snapshots of these steps."""
        load_weights(model, self._snapshot(steps[0]))
        mean = {name: weight.double() for name, weight in weights_of(model).items()}
        for step in steps[1:]:
            for name, weight in read_tensors(self._snapshot(step))[0].items():
                mean[name] += weight
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(mean[name] / len(steps))

    def cut_log(self, progress: Progress) -> None:
        """Forget what was logged after the checkpoint: it will be logged again."""
        self.run.log.touch()
        if self.run.log.stat().st_size < progress.log_bytes:
            raise CheckpointError(f"{self.run.log}: shorter than the checkpoint says; restore it from a copy")
        os.truncate(self.run.log, progress.log_bytes)

    def _snapshot(self, step: int) -> Path:
        return self.snapshots / f"{step:08d}.safetensors"

    def _prune(self, steps: list[int]) -> None:
        wanted = {self._snapshot(step) for step in steps}
        for path in self.snapshots.glob("*.safetensors"):
            if path not in wanted:
                path.unlink()


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _moments(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts by the names of the weights they belong to."""
    kept = {}
    for name, weight in model.named_parameters():
        for key in (*MOMENTS, "step"):
            if key in optimiser.state[weight]:
                kept[f"{key}.{name}"] = optimiser.state[weight][key].detach().cpu().contiguous()
    return kept


def _restore(model: nn.Module, optimiser: torch.optim.Optimizer, found: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(found[f"model.{name}"])
            if f"step.{name}" in found:
                state = {key: found[f"{key}.{name}"].to(weight.device) for key in MOMENTS}
                optimiser.state[weight] = {"step": found[f"step.{name}"].to(weight.device), **state}
