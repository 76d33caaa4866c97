"""Verification of a token store: its bytes on disk are those that were written, and every id is in the vocabulary.

All cores compute the checksums of its files, part by part (``bench/loader.py`` measures the speed). A store of earlier
versions has only a digest, which is hashed in one thread per file. Called by training/token_stores.py before a run is
resumed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.checksums import PART_BYTES, format_checksum, join_crc32
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


class _Part(NamedTuple):
    """The CRC-32 of some bytes of a file, how many they are, and the largest id; -1 where they hold no ids."""

    crc32: int
    n_bytes: int
    largest_id: int


@dataclass(frozen=True)
class StoredFile:
    """A file of a column; `id_dtype` and `n_ids` are the type of its ids and their number, where it holds ids."""

    path: Path
    n_skipped_bytes: int = 0
    id_dtype: str = ""
    n_ids: int = 0

    def read_parts(self, pool: ThreadPoolExecutor) -> tuple[str, int]:
        """Return the checksum of the file, and its largest id; -1 where it holds no ids."""
        crc32, largest_id = 0, -1
        for part in pool.map(self._read_part, range(0, self.path.stat().st_size, PART_BYTES)):
            crc32, largest_id = join_crc32(crc32, part.crc32, part.n_bytes), max(largest_id, part.largest_id)
        return format_checksum(crc32), largest_id

    def _read_part(self, start: int) -> _Part:
        with self.path.open("rb", buffering=0) as file:
            file.seek(start)
            block = file.read(PART_BYTES)
        largest_id = int(np.frombuffer(block, self.id_dtype).max(initial=0)) if self.id_dtype else -1
        return _Part(zlib.crc32(block), len(block), largest_id)

    def compute_digest(self) -> bytes:
        """Return the digest of the file."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        with self.path.open("rb") as file:
            file.seek(self.n_skipped_bytes)
            while block := file.read(PART_BYTES):
                digest.update(block)  # releases the interpreter's lock, so that files are hashed in parallel
        return digest.digest()


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
        results = [file.read_parts(pool) for file in files]
        for file, (checksum, largest_id) in zip(files, results, strict=True):
            if file.id_dtype and largest_id >= file.n_ids:
                return f"{file.path.name} holds id {largest_id:,} of a vocabulary of {file.n_ids:,}"
            if store.checksums and store.checksums.get(file.path.name) != checksum:
                return f"{file.path.name} does not have its checksum"
        digest = "" if store.checksums else store.digest or expected_digest
        is_intact = not digest or digest == combine_digests(pool.map(StoredFile.compute_digest, files))
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
