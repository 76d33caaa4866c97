"""Files that are there whole or not at all: written aside, flushed to the disk, renamed into place.

Whatever must survive a crash is written through here: tokenizers, stores, run directories. JSON of other libraries is
read here too.
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
    """Write a text file whole or not at all."""
    write_atomically(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json_text(value, indent=2) + "\n")


def read_json(path: Path, expected_type: type = dict) -> Any:
    """What a JSON file holds, which must be an object, or what else is asked for."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged, or not JSON ({error}); restore it from a copy") from None
    if not isinstance(found, expected_type):
        raise CheckpointError(
            f"{path}: expected {'an object' if expected_type is dict else 'a list'}, found other JSON"
        )
    return found


def read_json_if_exists(path: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing where there is none."""
    found: dict[str, Any] = read_json(path) if path.exists() else {}
    return found


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON, which has no word for an infinite number or for none: those become null."""
    return json.dumps(_replace_non_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, flush it to disk, and put it in the place of `path`."""
    aside = path.with_name(path.name + ".new")
    try:
        write(aside)
        fsync_path(aside)
        aside.replace(path)
        fsync_path(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
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
    """Make sure that what was written to a file or a directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
