"""Token ids and labels on disk, memory-mapped: corpora may be larger than memory, and are tokenized once.

A store is a directory: the files of its columns (columns.py) and a manifest that is written last. It knows numbers
only: no text, no special tokens. Tasks write it from tokenized examples and read it through `order.py` (the lengths)
and `batches.py` (the ids). A store that is damaged, of another format or made from other files counts as absent:
`TokenStore.open` returns None and the caller writes it anew; the digest shows whether the new one has the same content.
verification.py compares all bytes with the digest, before they are trained on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from regard.data.columns import (
    DIGEST_BYTES,
    Column,
    ColumnSpec,
    ColumnWriter,
    EncodedChunk,
    Scalars,
    choose_token_dtype,
    map_column,
)
from regard.disk import fsync_path, write_json
from regard.errors import CheckpointError

FORMAT_VERSION = 2
"""Format 1, of version 0.1, held token ids alone; labels were ids there, so the digests of labelled data differ."""
MANIFEST_FILE = "manifest.json"
STALE_SECONDS = 3600.0
"""Seconds after which a temporary directory that nobody writes to counts as left by a killed process."""


class DigestMismatchError(Exception):
    """The data to be written differs from what was expected; the store at the path is kept."""


class TokenStore:
    """Columns of token ids, labels and numbers; stores of equal digest hold the same, "" is an unknown digest."""

    def __init__(self, path: Path, columns: Mapping[str, Column | Scalars], digest: str = "") -> None:
        self.path, self.columns, self.digest = path, columns, digest
        self.cache: dict[tuple[str, int], Any] = {}  # what lm_windows.py and tasks compute from all lengths once

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        """Return a column of tokens, or of labels of tokens."""
        column = self.columns[name]
        assert isinstance(column, Column), f"{name}: one number per example; read it with values()"
        return column

    def values(self, name: str) -> Scalars:
        """Return a column of one number per example."""
        column = self.columns[name]
        assert not isinstance(column, Column), f"{name}: a column of sequences"
        return column

    @property
    def purpose(self) -> str:
        """The use of the store, "train" or "validate", for messages."""
        return "validate" if "valid" in self.path.name else "train"

    def lengths(self, *columns: str, n_special_tokens: int = 0) -> Int[np.ndarray, "items sides"]:
        """Return the positions each example takes in a row, one side per column, special tokens included."""
        sides = np.empty((len(self), len(columns)), dtype=np.int32)
        for side, column in enumerate(columns):
            np.add(self[column].lengths, n_special_tokens, out=sides[:, side])
        return sides

    @classmethod
    def open(cls, path: Path, fingerprint: str) -> TokenStore | None:
        """Return the store at the path; None if it is absent, damaged, or of another format or fingerprint."""
        try:
            manifest = cls.read_manifest(path)
            if (manifest["format"], manifest["fingerprint"]) != (FORMAT_VERSION, fingerprint):
                return None
            n_examples = manifest["examples"]
            columns = {name: map_column(path, name, n_examples, entry) for name, entry in manifest["columns"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        return cls(path, columns, manifest.get("digest", ""))

    @staticmethod
    def read_manifest(path: Path) -> dict[str, Any]:
        """Return the manifest of the store at the path, of any format, whether or not its files are whole; or {}."""
        try:
            manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return manifest if isinstance(manifest, dict) else {}

    @classmethod
    def write(
        cls,
        path: Path,
        columns: Sequence[ColumnSpec],
        chunks: Iterable[EncodedChunk],
        *,
        fingerprint: str,
        expected_digest: str = "",
    ) -> TokenStore:
        """Write a store in place of whatever is at the path; it appears there complete or not at all.

        Where a digest is expected and the data has another, raise `DigestMismatchError`.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        temporary = _make_temporary_directory(path)
        try:
            manifest = _write_columns(temporary / "new", columns, chunks)
            if expected_digest and manifest["digest"] != expected_digest:
                raise DigestMismatchError(path)
            write_json(
                temporary / "new" / MANIFEST_FILE, manifest | {"format": FORMAT_VERSION, "fingerprint": fingerprint}
            )
            if path.exists():
                path.rename(temporary / "old")
            (temporary / "new").rename(path)
            fsync_path(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        store = cls.open(path, fingerprint)
        if store is None:
            raise CheckpointError(
                f"{path}: written, but cannot be read again; see whether the disk fails, and try again"
            )
        return store


def _write_columns(directory: Path, specs: Sequence[ColumnSpec], chunks: Iterable[EncodedChunk]) -> dict[str, Any]:
    """Write the files of all columns, chunk by chunk; return what the manifest says of them."""
    directory.mkdir()
    with ExitStack() as stack:
        dtype = choose_token_dtype(specs)
        writers = [ColumnWriter(directory, spec, dtype, stack) for spec in specs]
        for chunk in chunks:
            for writer, entries in zip(writers, chunk, strict=True):
                writer.write(entries)
            counts = [writer.n_examples for writer in writers]
            assert len(set(counts)) == 1, f"columns of unequal length: {counts}"
        for writer in writers:
            writer.close()
    digest = combine_digests(writer.digest for writer in writers)
    columns = {writer.spec.name: writer.describe() for writer in writers}
    return {"examples": writers[0].n_examples, "columns": columns, "digest": digest}


def combine_digests(digests: Iterable[bytes]) -> str:
    """Return the digest of a store from those of its files."""
    return hashlib.blake2b(b"".join(digests), digest_size=DIGEST_BYTES).hexdigest()


def _make_temporary_directory(path: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial"))


def _remove_stale(path: Path) -> None:
    """Remove what killed processes left half written; the files of a living one are recent."""
    for temporary in path.parent.iterdir():
        if temporary.name.startswith(f".{path.name}.") and temporary.suffix == ".partial":
            with suppress(OSError):  # a living process may be removing it
                newest = max(file.stat().st_mtime for file in (temporary, *temporary.rglob("*")))
                if time.time() - newest > STALE_SECONDS:
                    shutil.rmtree(temporary)
