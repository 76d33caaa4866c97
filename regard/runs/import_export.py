"""Between run directories and the directories of other libraries: `regard import` and `regard export`.

models/exchange does the work on config, weights and vocabulary; here they become runs, and runs become them.
"""

from __future__ import annotations

from pathlib import Path

from regard import config
from regard.disk import convert_write_errors, write_text
from regard.errors import CheckpointError, InputError
from regard.models import exchange
from regard.models.weights import collect_weights, write_tensors
from regard.runs.model_loading import open_hf_model, open_model
from regard.runs.run_directory import RunDirectory

EXPORT_FORMATS = ("hf",)
"""What a model can be exported to."""


def import_model(source: Path, out: Path) -> Path:
    """Make a run directory of another library's directory; its config comes last, so that it is a run or none."""
    if RunDirectory(source).exists():
        raise InputError(f"{source}: already a run directory; use it as it is")
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such directory; name one with config.json and model.safetensors")
    _check_output_directory(out)
    settings, task, model = open_hf_model(source)
    run = RunDirectory(out)
    with convert_write_errors(out):
        run.path.mkdir(parents=True, exist_ok=True)
        task.save(run.path)
        write_tensors(run.weights_path, collect_weights(model))
        write_text(run.config_path, config.dump(settings.tables()))
    return out


def export_model(source: Path, out: Path, export_format: str) -> Path:
    """Write a model as a directory of another library."""
    if export_format not in EXPORT_FORMATS:
        raise InputError(f"--to {export_format}: accepted: {', '.join(EXPORT_FORMATS)}")
    _check_output_directory(out)
    settings, task, model = open_model(source)
    task.prepare_for_export(model)
    table = settings.tables()["task"]
    with convert_write_errors(out):
        exchange.write_hf_directory(out, model, table, task.tokenizers, task.labels.names)
    return out


def _check_output_directory(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: already there, and not empty; choose another --out")
