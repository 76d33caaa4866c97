"""Opening a trained model: from a run directory, or from a directory of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.errors import CheckpointError
from regard.models import exchange
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks import TASKS, Task
from regard.text.tokenizer_training import TokenizerConfig


def open_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """A trained model with the task it was trained for: a run, or a directory of another library."""
    run = RunDirectory(path)
    return open_hf_model(path) if exchange.is_hf_directory(path) and not run.exists() else run.load()


def open_hf_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """The model in a directory of another library, as if it had been trained here."""
    found = exchange.read_hf_directory(path)
    name = found.task["name"]
    if name not in TASKS:
        raise CheckpointError(f"{path}: a {found.family.name} is for the task '{name}', which is not there yet")
    task: Any = TASKS[name].from_hf_checkpoint(found)
    model = task.build_model(found.config)
    found.load_into(model)
    vocabulary = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=found.tokenizers.is_joint)
    nothing = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    settings = RunConfig(task.config, nothing, vocabulary, found.config, PLACEHOLDER_TRAIN_CONFIG)
    return settings, task, model.eval()
