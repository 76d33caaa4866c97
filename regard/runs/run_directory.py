"""The run directory: a model and everything needed to use it, to go on training it and to know how it was made.

    config.toml         the resolved recipe              log.jsonl       what training saw, step by step
    tokenizer.json      and what else the task saves     metrics.json    how good it became, how long it took
    model.safetensors   the best weights so far          train.safetensors, train.json, snapshots/: checkpoint.py

Every file is written aside, flushed and renamed, but for log.jsonl, which grows and is cut back to what the
checkpoint knows, and curve.png, which can be drawn again. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from regard import config
from regard.errors import CheckpointError
from regard.models.weights import load_weights
from regard.runs.recipe import RunConfig, build_run_config
from regard.tasks import TASKS, Task


class RunDirectory:
    """The files of a run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.weights_path = path / "model.safetensors"
        self.log_path = path / "log.jsonl"
        self.metrics_path = path / "metrics.json"
        self.stores_path = path / "store"

    def exists(self) -> bool:
        """A run was begun here."""
        return self.config_path.exists()

    def read_config(self) -> RunConfig:
        """The resolved recipe this run was begun with."""
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path}: no such run directory; `regard train` makes one")
        if not self.config_path.exists():
            found = f"{self.path}: not a run directory: it has no config.toml"
            raise CheckpointError(f"{found}; name one that `regard train` or `regard import` made")
        return build_run_config(config.read(self.config_path), str(self.config_path))

    def read_metrics(self) -> dict[str, Any]:
        """How training went; nothing while it has not ended."""
        try:
            found: dict[str, Any] = json.loads(self.metrics_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CheckpointError(
                f"{self.metrics_path}: damaged ({error}); delete it, or restore it from a copy"
            ) from None
        return found

    def load(self) -> tuple[RunConfig, Task, nn.Module]:
        """The task and the model with its best weights, ready for use."""
        settings = self.read_config()
        task = TASKS[settings.task.name].load(settings.task, settings.tokenizer, self.path)
        model = task.build_model(settings.model)
        load_weights(model, self.weights_path)
        return settings, task, model.eval()
