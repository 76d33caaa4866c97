"""Atomic file writes: to a temporary file, flushed to disk, then renamed into place.

Everything that must survive a crash is written through here: tokenizers, stores, run directories. JSON files of other
libraries are read here too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from regard.errors import CheckpointError, InputError, RegardError


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary_path: temporary_path.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json_text(value, indent=2) + "\n")


def read_json(path: Path, expected_type: type = dict) -> Any:
    """Return the value in a JSON file, which must be an object, or of the type given."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged, or not JSON ({error}); restore it from a copy") from None
    if not isinstance(value, expected_type):
        raise CheckpointError(
            f"{path}: expected {'an object' if expected_type is dict else 'a list'}, found other JSON"
        )
    return value


def read_json_if_exists(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or {} if the file does not exist."""
    value: dict[str, Any] = read_json(path) if path.exists() else {}
    return value


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return the value as JSON; infinities and NaN, which JSON cannot express, become null."""
    return json.dumps(_replace_non_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk, and rename it to `path`."""
    temporary_path = path.with_name(path.name + ".new")
    try:
        write(temporary_path)
        fsync_path(temporary_path)
        temporary_path.replace(path)
        fsync_path(path.parent)
    except BaseException:
        temporary_path.unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """Raise an error if no file can be written at `path`; called before work that may take long."""
    with convert_write_errors(path):
        if path.is_dir():
            raise InputError(f"{path}: cannot be written: is a directory; name a file in it")
        if not path.parent.is_dir():
            raise InputError(f"{path}: cannot be written: no directory {path.parent}; make it first")
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}."):
            pass


@contextmanager
def convert_write_errors(
    path: Path, *, fix: str = "make room, or choose another path", error_type: type[RegardError] = InputError
) -> Iterator[None]:
    """Raise an `OSError` of the block as a one-line error about `path` that ends with the likely fix."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{path}: cannot be written ({error.strerror or error}); {fix}") from None


def fsync_path(path: Path) -> None:
    """Flush a file or a directory entry to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
