"""Verification of a token store: its bytes on disk are those that were written, and every id is in the vocabulary.

Files are hashed side by side, at the speed of the disk or of BLAKE2b (``bench/loader.py`` measures it). Called by
training/token_stores.py before a run is resumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.columns import (
    DIGEST_BYTES,
    FIRST_OFFSET_BYTES,
    Column,
    ColumnSpec,
    TokenColumnSpec,
    choose_token_dtype,
    column_dtype,
    column_paths,
)
from regard.data.store import TokenStore, combine_digests

BLOCK_BYTES = 1 << 20
"""Bytes of a file that are hashed at a time."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a column; `id_dtype` and `n_ids` are the type of its ids and their number, where it holds ids."""

    path: Path
    n_skipped_bytes: int = 0
    id_dtype: str = ""
    n_ids: int = 0

    def read(self) -> tuple[bytes, int]:
        """Return the digest of the file, and its largest id; -1 where it holds no ids."""
        digest, largest_id = hashlib.blake2b(digest_size=DIGEST_BYTES), -1
        with self.path.open("rb") as file:
            file.seek(self.n_skipped_bytes)
            while block := file.read(BLOCK_BYTES):
                digest.update(block)  # releases the interpreter's lock, so that files are hashed in parallel
                if self.id_dtype:
                    largest_id = max(largest_id, int(np.frombuffer(block, self.id_dtype).max()))
        return digest.digest(), largest_id


def find_damage(store: TokenStore, specs: Sequence[ColumnSpec], expected_digest: str = "") -> str:
    """Return what is wrong with the bytes of a store; the empty string if they are those that were written.

    A store without a digest must have the expected one, if that is known.
    """
    token_dtype = choose_token_dtype(specs)
    dtypes = {name: _dtype(store, name) for name in store.columns}
    if dtypes != {spec.name: column_dtype(spec, token_dtype) for spec in specs}:
        return "its columns are others"
    files = [file for spec in specs for file in _list_files(store.path, spec, token_dtype)]
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(StoredFile.read, files))
    for file, (_, largest_id) in zip(files, results, strict=True):
        if file.id_dtype and largest_id >= file.n_ids:
            return f"{file.path.name} holds id {largest_id:,} of a vocabulary of {file.n_ids:,}"
    digest = store.digest or expected_digest
    is_intact = not digest or digest == combine_digests(file_digest for file_digest, _ in results)
    return "" if is_intact else "its bytes do not have its digest"


def _dtype(store: TokenStore, name: str) -> str:
    column = store.columns[name]
    return str(column.ids.dtype if isinstance(column, Column) else column.dtype)


def _list_files(directory: Path, spec: ColumnSpec, token_dtype: str) -> list[StoredFile]:
    """Return the files of a column in the order of the store's digest."""
    values, *offsets = column_paths(directory, spec.name, spec.kind)
    if isinstance(spec, TokenColumnSpec):
        first = StoredFile(values, id_dtype=token_dtype, n_ids=spec.vocabulary_size)
    else:
        first = StoredFile(values)
    return [first, *(StoredFile(path, FIRST_OFFSET_BYTES) for path in offsets)]
