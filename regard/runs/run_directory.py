"""The run directory: a model and everything needed to use it, to resume its training and to know how it was made.

    config.toml         the resolved recipe                  log.jsonl       training and validation metrics by step
    tokenizer.json      and the other files of the task      metrics.json    final scores and training time
    model.safetensors   the best weights so far              train.safetensors, train.json, snapshots/: checkpoint.py

Every file is written under a temporary name, flushed and renamed, except log.jsonl, which is appended to and truncated
to the length that the checkpoint stores, and curve.png, which can be drawn again. Nothing is ever unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from regard import config
from regard.disk import read_json_if_exists, write_text
from regard.errors import CheckpointError
from regard.models.weights import load_weights
from regard.runs.recipe import RunConfig, build_run_config
from regard.tasks import TASKS, Task


class RunDirectory:
    """The paths of a run's files, and how to read them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.weights_path = path / "model.safetensors"
        self.log_path = path / "log.jsonl"
        self.metrics_path = path / "metrics.json"
        self.progress_path = path / "train.json"
        self.stores_path = path / "store"

    def exists(self) -> bool:
        """Return True if a run was begun here."""
        return self.config_path.exists()

    def read_config(self) -> RunConfig:
        """Return the resolved recipe of this run."""
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path}: no such run directory; `regard train` makes one")
        if not self.config_path.exists():
            problem = f"{self.path}: not a run directory: it has no config.toml"
            raise CheckpointError(f"{problem}; name one that `regard train` or `regard import` made")
        return build_run_config(config.read(self.config_path), str(self.config_path))

    def write_config(self, run_config: RunConfig) -> None:
        """Write the resolved recipe."""
        write_text(self.config_path, config.dump(run_config.tables()))

    def read_metrics(self) -> dict[str, Any]:
        """Return the final scores and times; nothing before training has finished."""
        return read_json_if_exists(self.metrics_path)

    def load(self) -> tuple[RunConfig, Task, nn.Module]:
        """Return the config, the task and the model with its best weights, in eval mode."""
        run_config = self.read_config()
        task = TASKS[run_config.task.name].load(run_config.task, run_config.tokenizer, self.path)
        model = task.build_model(run_config.model)
        load_weights(model, self.weights_path)
        return run_config, task, model.eval()
