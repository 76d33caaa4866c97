"""Loading of a trained model from a run directory, by its name, or from a Hugging Face directory; of word vectors from
a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.data.word_vectors import WordVectorTable, read_word_vectors
from regard.errors import CheckpointError, InputError
from regard.models import exchange
from regard.runs.ready_made import locate_model
from regard.runs.recipe import PLACEHOLDER_TRAIN_CONFIG, RunConfig
from regard.runs.run_directory import DISTILLED_FROM, IMPORTED_FROM, RunDirectory
from regard.tasks import TASKS, Task
from regard.tasks.vectors import WordVectorTask
from regard.text.fingerprints import digest_bytes, digest_files
from regard.text.tokenizer_training import TokenizerConfig


def open_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """Return config, task and model of a run directory, a ready-made model or a Hugging Face directory."""
    path = locate_model(path)
    run = RunDirectory(path)
    return open_hf_model(path) if exchange.is_hf_directory(path) and not run.exists() else run.load()


def describe_origin(path: Path, run_config: RunConfig) -> str:
    """Return the library that a model comes from; "" for one that was trained here."""
    run = RunDirectory(path)
    if not run.exists():
        return exchange.describe_hf_directory(path)
    return run.read_notes().get(IMPORTED_FROM, "" if run_config.was_trained_here else "another library")


def describe_teacher(path: Path) -> str:
    """Return the teacher of a student that was distilled; "" for any other model."""
    return RunDirectory(path).read_notes().get(DISTILLED_FROM, "")


def digest_model_files(path: Path) -> str:
    """Return the digest of the weights and vocabularies in a model's directory."""
    files = sorted(
        [*path.glob("model*.safetensors"), *path.glob("tokenizer*.json"), *path.glob("*.spm"), *path.glob("vocab*")]
    )
    return digest_bytes([digest_files(files).encode(), *(file.name.encode() for file in files)])


def open_word_vectors(path: Path) -> WordVectorTable:
    """Return the word vectors of a run directory, or of a file in word2vec's or GloVe's format."""
    if path.is_file():
        return read_word_vectors(path)
    run_config, task, model = open_model(path)
    if not isinstance(task, WordVectorTask):
        raise InputError(f"{path}: a model for {run_config.task.name}, not word vectors")
    return task.word_vectors(model)


def has_word_vectors(path: Path) -> bool:
    """Return True for a file, or for a run directory of word vectors."""
    run = RunDirectory(locate_model(path))
    return path.is_file() or (run.exists() and run.read_config().task.name == WordVectorTask.name)


def open_hf_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """Return config, task and model of a Hugging Face directory; unknown keys of the config hold placeholders."""
    checkpoint = exchange.read_hf_directory(path)
    name = checkpoint.task["name"]
    if name not in TASKS:
        raise CheckpointError(f"{path}: a {checkpoint.family.name} is for the task '{name}', which is not available")
    task: Any = TASKS[name].from_hf_checkpoint(checkpoint)
    model = checkpoint.load_model(task.build_model)
    tokenizer = TokenizerConfig(kind="ready", vocabulary=task.vocabulary_size, joint=checkpoint.tokenizers.is_joint)
    no_data = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    run_config = RunConfig(task.config, no_data, tokenizer, checkpoint.config, PLACEHOLDER_TRAIN_CONFIG)
    return run_config, task, model.eval()
