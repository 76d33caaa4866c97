"""Import of a Hugging Face directory as a run directory, and checks before an export.

models/exchange converts config, weights and vocabulary; this file writes the run directory. Called by `regard import`,
by regard/export and, to say early what cannot be exported, by the training plan.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from regard.data.word_vectors import write_word_vectors
from regard.disk import convert_write_errors
from regard.errors import CheckpointError, InputError
from regard.models import exchange
from regard.models.weights import collect_weights, write_tensors
from regard.runs.directory_lock import is_empty_directory
from regard.runs.model_loading import open_hf_model, open_word_vectors
from regard.runs.run_directory import IMPORTED_FROM, RunDirectory
from regard.tasks import Task
from regard.tasks.vectors import WordVectorTask


def import_model(source: Path, out: Path) -> Path:
    """Write a Hugging Face directory as a run directory; the config is written last and completes it."""
    if RunDirectory(source).exists():
        raise InputError(f"{source}: already a run directory; use it as it is")
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such directory; name one with config.json and model.safetensors")
    run = RunDirectory(out)
    with run.lock:
        check_output_directory(out)
        run_config, task, model = open_hf_model(source)
        with convert_write_errors(out, fix="choose another --out"):
            task.save(run.path)
            write_tensors(run.weights_path, collect_weights(model))
            run.write_config(run_config, {IMPORTED_FROM: exchange.describe_hf_directory(source)})
    return out


def export_word_vectors(source: Path, out: Path) -> Path:
    """Write word vectors as a file of word2vec's."""
    if out.exists():
        raise InputError(f"{out}: already exists; choose another --out")
    table = open_word_vectors(source)
    with convert_write_errors(out, fix="choose another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_word_vectors(out, table)
    return out


def describe_export_problem(task: Task, model: nn.Module) -> str:
    """Return in a few words why a network cannot be exported as a Hugging Face directory; "" if it can."""
    if isinstance(task, WordVectorTask):
        return ""
    if not (hasattr(task, "tokenizers") and hasattr(model, "config")):  # a task or model defined elsewhere
        return "not as a Hugging Face model: no exporter for this task"
    if task.export_problem:
        return f"not as a Hugging Face model: {task.export_problem}"
    model = exchange.to_exchangeable(model)
    try:
        family = exchange.choose_hf_family(model, task.tokenizers)
    except InputError:
        return "not as a Hugging Face model: this architecture has no counterpart"
    try:
        family.check_vocabularies(model, task.tokenizers)
        family.to_hf_config(model)
    except InputError as error:
        return f"not as Hugging Face {family.name}: {str(error).partition(', so this model')[0]}"
    return ""


def check_output_directory(out: Path) -> None:
    """Refuse to write among other files."""
    if not is_empty_directory(out):
        raise InputError(f"{out}: already exists and is not empty; choose another --out")
