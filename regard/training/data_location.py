"""The data files of a resumed run, whose paths may be relative to the directory that the run was started in.

A path is looked up in the current directory first, as when the run was started, then in the directory that a note in
config.toml names. Called by prepare.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from regard.data.corpus import DataConfig, ExampleReader
from regard.errors import DataError
from regard.progress import print_message
from regard.runs.run_directory import STARTED_IN, RunDirectory


def note_start_directory() -> dict[str, str]:
    """Return the note on the current directory for config.toml; none if that has been deleted."""
    with suppress(FileNotFoundError):
        return {STARTED_IN: str(Path.cwd())}
    return {}


def find_path(path: str, run: RunDirectory) -> str:
    """Return the path that a recipe names, in the directory that the run was started in if it is not in this one."""
    elsewhere = Path(run.read_notes().get(STARTED_IN, ""), path)
    return str(elsewhere) if not Path(path).exists() and elsewhere.exists() else path


def find_data(reader: ExampleReader, data: DataConfig, run: RunDirectory) -> DataConfig:
    """Return the data of a run, all of it in the directory that the run was started in if it is not in this one."""
    files = reader.paths(data.all_entries)
    missing = _first_missing(files, "")
    start = run.read_notes().get(STARTED_IN, "")
    if missing is None or missing.is_absolute() or note_start_directory().get(STARTED_IN) == start:
        return data
    if not start:
        problem = "no such file; the path is relative to the directory that the run was started in"
        raise DataError(missing, f"{problem}: resume it there")
    missing = _first_missing(files, start)
    if missing is not None:
        raise DataError(missing, f"no such file, neither here nor in {start}, where the run was started; put it back")
    print_message(f"data       read from {start}, where the run was started")

    def find(entries: Iterable[str]) -> tuple[str, ...]:
        return tuple(str(Path(start, entry)) for entry in entries)

    train, valid, keep, keep_valid = map(find, (data.train, data.valid, data.keep, data.keep_valid))
    return replace(data, train=train, valid=valid, keep=keep, keep_valid=keep_valid)


def _first_missing(files: Iterable[Path], directory: str) -> Path | None:
    """Return the first file that is not in a directory."""
    return next((file for file in files if not Path(directory, file).exists()), None)
