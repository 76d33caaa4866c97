"""Loading of a trained model from a run directory or a Hugging Face directory."""

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
    """Return config, task and model of a run directory or a Hugging Face directory."""
    run = RunDirectory(path)
    return open_hf_model(path) if exchange.is_hf_directory(path) and not run.exists() else run.load()


def open_hf_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """Return config, task and model of a Hugging Face directory; unknown keys of the config hold placeholders."""
    checkpoint = exchange.read_hf_directory(path)
    name = checkpoint.task["name"]
    if name not in TASKS:
        raise CheckpointError(f"{path}: a {checkpoint.family.name} is for the task '{name}', which is not available")
    task: Any = TASKS[name].from_hf_checkpoint(checkpoint)
    model = task.build_model(checkpoint.config)
    checkpoint.load_into(model)
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=checkpoint.tokenizers.is_joint)
    no_data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    run_config = RunConfig(task.config, no_data, tokenizer, checkpoint.config, PLACEHOLDER_TRAIN_CONFIG)
    return run_config, task, model.eval()
