"""Token ids on disk, memory-mapped: corpora may be larger than memory, and are tokenized once.

A store is a directory: per column one flat file of ids and one of offsets, and a manifest that is written last.
It knows numbers only: no text, no special tokens. Tasks write it from tokenized examples and read it through
`order.py` (the lengths) and `batches.py` (the ids). A store that is damaged or was made from other files counts
as absent: `TokenStore.open` gives None and the caller writes it anew; the digest of the ids tells whether that came
to the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int, Integer

from regard.disk import fsync_path, write_json

FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
STALE_SECONDS = 3600.0
"""A directory of unfinished writing that nobody has touched for so long was left by a killed process."""

EncodedChunk = Sequence[Sequence[Sequence[int]]]
"""Some consecutive examples: for each column, one list of ids per example."""


@dataclass(frozen=True)
class Column:
    """The ids of one side of every example, laid end to end; `offsets` has one entry more than examples."""

    ids: Integer[np.ndarray, " tokens"]
    offsets: Int[np.ndarray, " ends"]

    @classmethod
    def from_sentences(cls, sentences: Sequence[Sequence[int]], dtype: str = "int32") -> Column:
        """A column in memory."""
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(sentences), dtype, count=int(offsets[-1])), offsets)

    @cached_property
    def lengths(self) -> Int[np.ndarray, " items"]:
        return np.diff(self.offsets).astype(np.int32)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> Integer[np.ndarray, " length"]:
        return self.ids[self.offsets[item] : self.offsets[item + 1]]


class DigestMismatchError(Exception):
    """What was to be written is not what was expected; the store that was there stays."""


class TokenStore:
    """Columns of token ids, one entry per example in each; stores of equal digest hold the same, "" is unknown."""

    def __init__(self, path: Path, columns: dict[str, Column], digest: str = "") -> None:
        self.path, self.columns, self.digest = path, columns, digest
        self.window_cache: dict[tuple[str, int], Any] = {}  # what windows.py works out from it

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> Column:
        return self.columns[column]

    @property
    def purpose(self) -> str:
        """What it serves to do, "train" or "validate", for messages."""
        return "validate" if "valid" in self.path.name else "train"

    def lengths(self, *columns: str, n_special_tokens: int = 0) -> Int[np.ndarray, "items sides"]:
        """What each example takes in a row, one side per column, with `extra` positions for special tokens."""
        sides = np.empty((len(self), len(columns)), dtype=np.int32)
        for side, column in enumerate(columns):
            np.add(self[column].lengths, n_special_tokens, out=sides[:, side])
        return sides

    @classmethod
    def open(cls, path: Path, fingerprint: str) -> TokenStore | None:
        """The store at that path, or None if there is none, or it is damaged, or it has another fingerprint."""
        try:
            manifest = cls.read_manifest(path)
            if (manifest["format"], manifest["fingerprint"]) != (FORMAT_VERSION, fingerprint):
                return None
            examples, dtype = manifest["examples"], manifest["dtype"]
            columns = {name: _map_column(path, name, examples, n, dtype) for name, n in manifest["columns"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        return cls(path, columns, manifest.get("digest", ""))

    @staticmethod
    def read_manifest(path: Path) -> dict[str, Any]:
        """What the store at that path says of itself, whether or not the rest of it is whole; {} if nothing."""
        try:
            found = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @classmethod
    def write(
        cls,
        path: Path,
        columns: Sequence[str],
        chunks: Iterable[EncodedChunk],
        *,
        vocabulary_size: int,
        fingerprint: str,
        expected_digest: str = "",
    ) -> TokenStore:
        """A new store in place of whatever is at the path; it appears there complete or not at all.

        Where a digest is expected, only what has it takes the place; else `OtherIds`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        aside = _make_temporary_directory(path)
        try:
            manifest = _write_columns(aside / "new", columns, chunks, vocabulary_size)
            if expected_digest and manifest["digest"] != expected_digest:
                raise DigestMismatchError(path)
            _write_manifest(aside / "new", manifest | {"format": FORMAT_VERSION, "fingerprint": fingerprint})
            if path.exists():
                path.rename(aside / "old")
            (aside / "new").rename(path)
            fsync_path(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        store = cls.open(path, fingerprint)
        assert store is not None, f"{path}: written, then not readable"
        return store


def _column_paths(directory: Path, column: str) -> tuple[Path, Path]:
    return directory / f"{column}.ids", directory / f"{column}.offsets"


def _map_column(path: Path, name: str, n_examples: int, n_tokens: int, dtype: str) -> Column:
    ids_path, offsets_path = _column_paths(path, name)
    column = Column(_memory_map(ids_path, n_tokens, dtype), _memory_map(offsets_path, n_examples + 1, "int64"))
    if column.offsets[0] != 0 or column.offsets[-1] != n_tokens:
        raise ValueError(f"{offsets_path}: does not fit its ids")
    return column


def _memory_map(path: Path, count: int, dtype: str) -> np.ndarray:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path}: not the size the manifest says")
    if count == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode="r", shape=(count,)).view(np.ndarray)


def _write_columns(
    directory: Path, names: Sequence[str], chunks: Iterable[EncodedChunk], vocabulary_size: int
) -> dict[str, Any]:
    """The files of all columns, chunk by chunk, and what the manifest says of them."""
    dtype = "uint16" if vocabulary_size <= 1 << 16 else "uint32"
    directory.mkdir()
    with ExitStack() as stack:
        files = [[stack.enter_context(path.open("wb")) for path in _column_paths(directory, name)] for name in names]
        examples, tokens = 0, [0] * len(names)
        hashes = [hashlib.blake2b(digest_size=16) for _ in (*names, *names)]
        for _, offsets in files:
            offsets.write(np.zeros(1, dtype=np.int64).data)
        for chunk in chunks:
            sides = [Column.from_sentences(sentences, dtype) for sentences in chunk]
            assert [len(side) for side in sides] == [len(sides[0])] * len(names), "columns of unequal length"
            for i, side in enumerate(sides):
                top = side.ids.max(initial=0)
                assert top < vocabulary_size, f"id {top} in a vocabulary of {vocabulary_size}"
                written = side.ids.data, (side.offsets[1:] + tokens[i]).data
                for part, file, seen in zip(written, files[i], hashes[2 * i : 2 * i + 2], strict=True):
                    file.write(part)
                    seen.update(part)
                tokens[i] += len(side.ids)
            examples += len(sides[0])
        for file in chain.from_iterable(files):
            _fsync(file)
    digest = hashlib.blake2b(b"".join(seen.digest() for seen in hashes), digest_size=16).hexdigest()
    sizes = dict(zip(names, tokens, strict=True))
    return {"examples": examples, "dtype": dtype, "columns": sizes, "digest": digest}


def _write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    write_json(directory / MANIFEST_FILE, manifest)


def _fsync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _make_temporary_directory(path: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))


def _remove_stale(path: Path) -> None:
    """Frees the disk of what a killed process left half written; a living one keeps its files fresh."""
    for aside in path.parent.iterdir():
        if aside.name.startswith(f".{path.name}.") and aside.suffix == ".partial":
            with suppress(OSError):  # a living process may just be done with it
                newest = max(file.stat().st_mtime for file in (aside, *aside.rglob("*")))
                if time.time() - newest > STALE_SECONDS:
                    shutil.rmtree(aside)
