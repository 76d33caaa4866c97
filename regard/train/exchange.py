"""Between run directories and the directories of other libraries: `regard import` and `regard export`.

models/exchange does the work on config, weights and vocabulary; here they become runs, and runs become them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard import config
from regard.disk import write_text
from regard.errors import CheckpointError, InputError
from regard.models import exchange
from regard.models.weights import weights_of, write_tensors
from regard.train.run import RunDirectory, imported, open_model

FORMATS = ("hf",)
"""What a model can be exported to."""


def import_model(source: Path, out: Path) -> Path:
    """Make a run directory of another library's directory; its config comes last, so that it is a run or none."""
    if RunDirectory(source).exists():
        raise InputError(f"{source}: already a run directory; use it as it is")
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such directory; name one with config.json and model.safetensors")
    _check_free(out)
    settings, task, model = imported(source)
    run = RunDirectory(out)

    def write() -> None:
        run.path.mkdir(parents=True, exist_ok=True)
        task.save(run.path)
        write_tensors(run.weights, weights_of(model))
        write_text(run.config, config.dump(settings.tables()))

    return _written(out, write)


def export_model(source: Path, out: Path, to: str) -> Path:
    """Write a model as a directory of another library."""
    if to not in FORMATS:
        raise InputError(f"--to {to}: accepted: {', '.join(FORMATS)}")
    _check_free(out)
    settings, task, model = open_model(source)
    task.plain(model)
    table = settings.tables()["task"]
    return _written(out, lambda: exchange.write(out, model, table, task.tokenizers, task.labels.names))


def _check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: already there, and not empty; choose another --out")


def _written(out: Path, write: Callable[[], None]) -> Path:
    try:
        write()
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from None
    return out
