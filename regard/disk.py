"""Files that are there whole or not at all: written aside, flushed to the disk, renamed into place.

Whatever must survive a crash is written through here: tokenizers, stores, run directories.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json_text(value, indent=2) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON, which has no word for an infinite number or for none: those become null."""
    return json.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, flush it to disk, and put it in the place of `path`."""
    aside = path.with_name(path.name + ".new")
    try:
        write(aside)
        flush(aside)
        aside.replace(path)
        flush(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Make sure that what was written to a file or a directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
