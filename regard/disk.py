"""Atomic file writes (to a temporary file, flushed to disk, then renamed into place) and checksums of what is written.

Everything that must survive a crash is written through here: tokenizers, stores, run directories. A file holds its own
checksum where its format allows, so that one rename replaces both: JSON here, weights in models/weights.py, config.toml
in runs/run_directory.py. JSON files of other libraries are read here too.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

from regard.errors import CheckpointError, InputError, RegardError, escape_unprintable, has_surrogate

TEMPORARY_PREFIX, TEMPORARY_SUFFIX = ".regard-", ".partial"
"""The name of a directory in which a file is written; a killed process leaves it behind."""

CHECKSUM_KEY = "checksum"
CHECKSUM_TYPE = "crc32:"
"""The beginning of a checksum; a file that contains it, or the key, has one, even if one of the two is damaged."""

MAX_DESCRIPTION_BYTES = 1 << 28
"""Bytes of a file that describes a model, at most; a vocabulary of ten million words has fewer."""

RESTORE = "restore it from a copy"
"""The fix for a damaged file that nothing else can replace."""


def check_path_is_utf8(path: Path, error_type: type[RegardError] = InputError) -> None:
    """Refuse a path that is not UTF-8: it cannot be written into a recipe, and safetensors cannot open it."""
    if has_surrogate(str(path)):
        raise error_type(f"{escape_unprintable(str(path))}: this path is not UTF-8; rename it")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary_path: temporary_path.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json_text(value, indent=2) + "\n")


def write_json_with_checksum(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object atomically, the checksum of the file without it under its last key."""
    text = json_text(value, indent=2) + "\n"
    write_text(path, _append_checksum(text, compute_checksum([text.encode()])))


def read_json(path: Path, expected_type: type = dict) -> Any:
    """Return the value in a JSON file, which must be an object, or of the type given."""
    return _parse_json(path, read_bytes(path), expected_type)


def read_json_if_exists(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or {} if the file does not exist."""
    value: dict[str, Any] = read_json(path) if path.exists() else {}
    return value


def read_json_with_checksum(path: Path, *, fix: str = RESTORE) -> dict[str, Any]:
    """Return the object in a JSON file without its checksum, or {} if the file does not exist.

    A file of an earlier version has no checksum. `fix` ends the message about a damaged one.
    """
    if not path.exists():
        return {}
    content = read_bytes(path)
    value: dict[str, Any] = _parse_json(path, content, fix=fix)
    text = content.decode()
    if CHECKSUM_KEY in text or CHECKSUM_TYPE in text:
        expected = str(value.pop(CHECKSUM_KEY, ""))
        without = text.removesuffix(_append_checksum("\n}\n", expected)) + "\n}\n"
        check_checksum(path, [without.encode()], expected, fix=fix)
    return value


def _append_checksum(text: str, expected: str) -> str:
    """Return the text of a JSON object with the checksum under its last key."""
    return text.removesuffix("\n}\n") + f',\n  "{CHECKSUM_KEY}": "{expected}"\n}}\n'


def read_bytes(path: Path) -> bytes:
    """Return the content of a file that describes a model; refuse a pipe, which may never end, and a huge file."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise CheckpointError(f"{path}: not a file; {RESTORE}")
        if size > MAX_DESCRIPTION_BYTES:
            raise CheckpointError(f"{path}: {size:,} bytes, expected at most {MAX_DESCRIPTION_BYTES:,}; {RESTORE}")
        return path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); {RESTORE}") from None


def _parse_json(path: Path, content: bytes, expected_type: type = dict, *, fix: str = RESTORE) -> Any:
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        problem = "too deeply nested" if isinstance(error, RecursionError) else error
        raise CheckpointError(f"{path}: damaged, or not JSON ({problem}); {fix}") from None
    if not isinstance(value, expected_type):
        raise CheckpointError(
            f"{path}: expected {'an object' if expected_type is dict else 'a list'}, found other JSON"
        )
    return value


def compute_checksum(chunks: Iterable[bytes | memoryview]) -> str:
    """Return the checksum of the concatenated chunks: CRC-32, which is fast and continues from chunk to chunk."""
    value = 0
    for chunk in chunks:
        value = zlib.crc32(chunk, value)
    return f"{CHECKSUM_TYPE}{value:08x}"


def check_checksum(path: Path, chunks: Iterable[bytes | memoryview], expected: str, *, fix: str = RESTORE) -> None:
    """Raise an error that ends with `fix` if the chunks of a file do not have this checksum."""
    if compute_checksum(chunks) != expected:
        raise damage_error(path, fix)


def damage_error(path: Path, fix: str) -> CheckpointError:
    """Return the error for a file whose content and checksum do not match."""
    return CheckpointError(f"{path}: damaged (its checksum does not match); {fix}")


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
    """Let `write` fill a temporary file, flush it to disk, and rename it to `path`."""
    # It is written in a directory, since libraries put temporary files of their own beside the file that they write.
    names = {"prefix": TEMPORARY_PREFIX, "suffix": TEMPORARY_SUFFIX}
    with TemporaryDirectory(dir=path.parent, **names, ignore_cleanup_errors=True) as directory:
        temporary_path = Path(directory) / path.name
        write(temporary_path)
        fsync_path(temporary_path)
        temporary_path.replace(path)
    fsync_path(path.parent)


def remove_temporary_directories(directory: Path, prefix: str = TEMPORARY_PREFIX) -> None:
    """Remove what killed processes left half written in a directory; only for the holder of its lock."""
    for path in directory.glob(f"{prefix}*{TEMPORARY_SUFFIX}"):
        shutil.rmtree(path)


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
    path: Path,
    *,
    fix: str | Callable[[], str] = "make room, or choose another path",
    error_type: type[RegardError] = InputError,
) -> Iterator[None]:
    """Raise an `OSError` of the block as a one-line error about `path` that ends with the likely fix."""
    try:
        yield
    except OSError as error:
        likely_fix = fix if isinstance(fix, str) else fix()
        raise error_type(f"{path}: cannot be written ({error.strerror or error}); {likely_fix}") from None


def fsync_path(path: Path) -> None:
    """Flush a file or a directory entry to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
