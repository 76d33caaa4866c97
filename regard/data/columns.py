"""Columns of a token store: what each holds of an example, the files it consists of, writing and mapping them.

    TokenColumnSpec    the token ids of a text              NAME.ids       NAME.offsets
    LabelColumnSpec    a label for each token of a text     NAME.values    NAME.offsets
    ScalarColumnSpec   one number for each example          NAME.values
    BytesColumnSpec    text in UTF-8, for metrics of texts  NAME.bytes     NAME.offsets

Files are flat arrays of one dtype, without a header; the store's manifest says how long they are.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int, Shaped


@dataclass(frozen=True)
class TokenColumnSpec:
    """A column of token ids, any number of them per example, all below `vocabulary_size`."""

    name: str
    vocabulary_size: int
    kind: ClassVar[str] = "tokens"
    suffixes: ClassVar[tuple[str, ...]] = ("ids", "offsets")


@dataclass(frozen=True)
class LabelColumnSpec:
    """A column of labels, or of scores, one for each token of an example."""

    name: str
    dtype: str = "int32"
    kind: ClassVar[str] = "labels"
    suffixes: ClassVar[tuple[str, ...]] = ("values", "offsets")


@dataclass(frozen=True)
class ScalarColumnSpec:
    """A column of single numbers, one for each example."""

    name: str
    dtype: str = "int32"
    kind: ClassVar[str] = "scalars"
    suffixes: ClassVar[tuple[str, ...]] = ("values",)


@dataclass(frozen=True)
class BytesColumnSpec:
    """A column of text in UTF-8, as bytes, any number of them per example."""

    name: str
    dtype: ClassVar[str] = "uint8"
    kind: ClassVar[str] = "bytes"
    suffixes: ClassVar[tuple[str, ...]] = ("bytes", "offsets")


ColumnSpec = TokenColumnSpec | LabelColumnSpec | ScalarColumnSpec | BytesColumnSpec
COLUMN_KINDS = {spec.kind: spec for spec in (TokenColumnSpec, LabelColumnSpec, ScalarColumnSpec, BytesColumnSpec)}

DIGEST_BYTES = 16
BLOCK_VALUES = 1 << 20
"""Values of a column read at a time when all of them are read."""
FIRST_OFFSET_BYTES = 8
"""The first offset is 0, and no digest includes it."""

Scalars = Shaped[np.ndarray, " items"]
EncodedChunk = Sequence[Sequence[Any]]
"""Some consecutive examples: for each column one entry per example, a list of ids or labels, or one number."""


@dataclass(frozen=True)
class Column:
    """The ids, or labels, of every example laid end to end; `offsets` has one entry more than examples."""

    ids: Shaped[np.ndarray, " tokens"]
    offsets: Int[np.ndarray, " ends"]

    @classmethod
    def from_sentences(cls, sentences: Sequence[Sequence[int | float]], dtype: str = "int32") -> Column:
        """Return a column in memory."""
        offsets = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(sentences), dtype, count=int(offsets[-1])), offsets)

    @cached_property
    def lengths(self) -> Int[np.ndarray, " items"]:
        lengths: Int[np.ndarray, " items"] = np.subtract(
            self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe"
        )
        return lengths

    def count_ids(self, n_ids: int) -> Int[np.ndarray, " V"]:
        """Return how often each id below `n_ids` occurs."""
        counts = np.zeros(n_ids, dtype=np.int64)
        for start in range(0, len(self.ids), BLOCK_VALUES):
            counts += np.bincount(self.ids[start : start + BLOCK_VALUES], minlength=n_ids)
            release_pages(self.ids)
        return counts

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> Shaped[np.ndarray, " length"]:
        return self.ids[self.offsets[item] : self.offsets[item + 1]]


def choose_token_dtype(specs: Sequence[ColumnSpec]) -> str:
    """Return the dtype of all token columns of a store, by the largest of their vocabularies."""
    largest = max((spec.vocabulary_size for spec in specs if isinstance(spec, TokenColumnSpec)), default=0)
    return "uint16" if largest <= 1 << 16 else "uint32"


def column_dtype(spec: ColumnSpec, token_dtype: str) -> str:
    """Return the dtype of a column's values."""
    return token_dtype if isinstance(spec, TokenColumnSpec) else spec.dtype


def release_pages(values: np.ndarray) -> None:
    """Take the pages of a memory-mapped array out of this process; the operating system may still hold the file."""
    owner: Any = values
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


class ColumnWriter:
    """The files of one column being written, chunk by chunk."""

    def __init__(self, directory: Path, spec: ColumnSpec, token_dtype: str, stack: ExitStack) -> None:
        self.spec = spec
        self.dtype = column_dtype(spec, token_dtype)
        self.n_examples = self.n_values = 0
        self._files = [stack.enter_context(path.open("wb")) for path in column_paths(directory, spec.name, spec.kind)]
        self._hashes = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in self._files]
        if len(self._files) > 1:
            self._files[1].write(bytes(FIRST_OFFSET_BYTES))

    def write(self, entries: Sequence[Any]) -> None:
        """Append the entries of some examples."""
        arrays = self._to_arrays(entries)
        for file, digest, values in zip(self._files, self._hashes, arrays, strict=True):
            file.write(values.data)
            digest.update(values.data)
        self.n_values += len(arrays[0])
        self.n_examples += len(entries)

    def _to_arrays(self, entries: Sequence[Any]) -> list[np.ndarray]:
        if isinstance(self.spec, ScalarColumnSpec):
            return [np.array(entries, dtype=self.dtype)]
        column = Column.from_sentences(entries, self.dtype)
        if isinstance(self.spec, TokenColumnSpec):
            top, size = int(column.ids.max(initial=0)), self.spec.vocabulary_size
            assert top < size or not len(column.ids), f"{self.spec.name}: id {top} in a vocabulary of {size}"
        return [column.ids, column.offsets[1:] + self.n_values]

    def close(self) -> None:
        """Bring all that was written to the disk."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())

    @property
    def digest(self) -> bytes:
        """A hash of the values and of where each example ends."""
        return b"".join(each.digest() for each in self._hashes)

    def describe(self) -> dict[str, Any]:
        """Return the column's entry in the manifest."""
        return {"kind": self.spec.kind, "dtype": self.dtype, "values": self.n_values}


def map_column(directory: Path, name: str, n_examples: int, entry: dict[str, Any]) -> Column | Scalars:
    """Return a column of a store, memory-mapped; ValueError where its files are not what the manifest says."""
    paths = column_paths(directory, name, entry["kind"])
    values = _memory_map(paths[0], entry["values"], entry["dtype"])
    if len(paths) == 1:
        if len(values) != n_examples:
            raise ValueError(f"{paths[0]}: {len(values)} values for {n_examples} examples")
        return values
    column = Column(values, _memory_map(paths[1], n_examples + 1, "int64"))
    if column.offsets[0] != 0 or column.offsets[-1] != len(values):
        raise ValueError(f"{paths[1]}: does not fit the values")
    return column


def column_paths(directory: Path, name: str, kind: str) -> list[Path]:
    """Return the files of a column: its values and, of sequences, where each ends."""
    return [directory / f"{name}.{suffix}" for suffix in COLUMN_KINDS[kind].suffixes]


def _memory_map(path: Path, count: int, dtype: str) -> np.ndarray:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path}: not the size the manifest says")
    if count == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode="r", shape=(count,)).view(np.ndarray)
