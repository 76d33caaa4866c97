"""An encoder as a run directory, without training it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import config
from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.models.encoder import TransformerEncoder
from regard.models.weights import collect_weights, write_tensors
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks.shared.encoder_task import EncoderTask
from regard.text.tokenizer_training import TokenizerConfig


def kept(task: EncoderTask, model: TransformerEncoder, path: Path) -> Path:
    """What `regard.load` and every command take."""
    path.mkdir(parents=True)
    any_task: Any = task
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=True)
    settings = RunConfig(
        any_task.config,
        DataConfig(train=(), max_length=MIN_ROW_WIDTH),
        tokenizer,
        model.config,
        PLACEHOLDER_TRAIN_CONFIG,
    )
    task.save(path)
    write_tensors(RunDirectory(path).weights_path, collect_weights(model))
    RunDirectory(path).config_path.write_text(config.dump(settings.tables()), encoding="utf-8")
    return path
