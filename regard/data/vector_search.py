"""Files of vectors that `regard embed` wrote, read again in batches, with the line and the text of each vector.

The texts of a .npy file are in a file of their own, which must be the one that was embedded. Called by the API to
search them; nothing is held in memory but a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from regard.data.vector_files import TEXT_VECTOR_COLUMNS
from regard.data.vector_origin import PARQUET_KEY, OriginRecord, TextDigest, origin_path
from regard.errors import DataError, InputError

BATCH_VECTORS = 4096
STORED_SUFFIXES = (".npy", ".parquet")


class VectorBatch(NamedTuple):
    """The number of the first line, from 1; the texts, None where the file has none; the vectors."""

    first_line: int
    texts: list[str] | None
    vectors: Float[np.ndarray, "N D"]


@dataclass(frozen=True)
class StoredVectors:
    """A file of the vectors of whole texts."""

    path: Path
    record: OriginRecord
    n_vectors: int
    width: int
    batches: Iterator[VectorBatch]


def is_vector_file(path: str) -> bool:
    """Return True for the name of a file of vectors."""
    return Path(path).suffix.lower() in STORED_SUFFIXES


def open_stored_vectors(path: Path, texts: Iterable[str] | None = None, texts_name: str = "") -> StoredVectors:
    """Open a file of the vectors of whole texts; `texts` are those of a .npy file, for one of Parquet has its own."""
    if not path.is_file():
        raise DataError(path, "no such file")
    if path.suffix.lower() == ".npy":
        return _open_npy(path, texts, texts_name)
    if texts is not None:
        raise InputError(f"{path} holds its texts; leave {texts_name or 'the texts'} out")
    return _open_parquet(path)


def _open_npy(path: Path, texts: Iterable[str] | None, texts_name: str) -> StoredVectors:
    beside = origin_path(path)
    if not beside.is_file():
        raise DataError(path, f"{beside.name} is missing, which says what model made it; embed the texts again")
    record = OriginRecord.parse(beside, beside.read_bytes())
    _check_level(path, record)
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # which refuses objects
    except (ValueError, EOFError, OSError):
        raise DataError(path, "damaged, or not a .npy file; embed the texts again") from None
    if array.ndim != 2 or array.dtype != np.float32 or len(array) != record.n_vectors:
        problem = f"an array of {array.dtype} {array.shape}, but {beside.name} says float32, {record.n_vectors} rows"
        raise DataError(path, f"{problem}; embed the texts again")
    n_vectors, width = array.shape
    return StoredVectors(path, record, n_vectors, width, _read_npy(path, array, record, texts, texts_name))


def _read_npy(
    path: Path, array: Float[np.ndarray, "N D"], record: OriginRecord, texts: Iterable[str] | None, texts_name: str
) -> Iterator[VectorBatch]:
    """Yield the vectors with their texts; at the end refuse texts that are not those that were embedded."""
    remaining, digest = None if texts is None else iter(texts), TextDigest()
    for start in range(0, len(array), BATCH_VECTORS):
        vectors = np.asarray(array[start : start + BATCH_VECTORS])
        chosen = None if remaining is None else list(islice(remaining, len(vectors)))
        if chosen is not None and len(chosen) < len(vectors):
            raise _other_length_error(path, len(array), start + len(chosen), texts_name)
        digest.update(chosen or [])
        yield VectorBatch(start + 1, chosen, vectors)
    if remaining is None:
        return
    if n_more := sum(1 for _ in remaining):
        raise _other_length_error(path, len(array), len(array) + n_more, texts_name)
    if digest.hexdigest() != record.texts:
        raise InputError(f"{texts_name}: not the texts whose vectors are in {path}; embed this file")


def _other_length_error(path: Path, n_vectors: int, n_texts: int, texts_name: str) -> InputError:
    return InputError(f"{texts_name}: {n_texts:,} lines, but {path} has {n_vectors:,} vectors; embed this file")


def _open_parquet(path: Path) -> StoredVectors:
    try:
        file = pq.ParquetFile(path)
        metadata = file.schema_arrow.metadata or {}
        vector_type = file.schema_arrow.field("vector").type
    except (pa.ArrowException, OSError, KeyError):
        raise DataError(path, "damaged, or not vectors that `regard embed` wrote; embed the texts again") from None
    if PARQUET_KEY.encode() not in metadata or not pa.types.is_fixed_size_list(vector_type):
        raise DataError(path, "does not say what model made its vectors; embed the texts again")
    record = OriginRecord.parse(path, metadata[PARQUET_KEY.encode()])
    _check_level(path, record)
    return StoredVectors(path, record, file.metadata.num_rows, vector_type.list_size, _read_parquet(path, file))


def _read_parquet(path: Path, file: pq.ParquetFile) -> Iterator[VectorBatch]:
    first_line = 1
    try:
        for batch in file.iter_batches(BATCH_VECTORS, columns=[*TEXT_VECTOR_COLUMNS, "vector"]):
            lists = batch.column("vector")
            vectors = lists.flatten().to_numpy().reshape(len(batch), -1)
            yield VectorBatch(first_line, batch.column("text").to_pylist(), vectors)
            first_line += len(batch)
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise DataError(path, "damaged; embed the texts again") from None


def _check_level(path: Path, record: OriginRecord) -> None:
    if record.origin.level != "text":
        raise DataError(path, f"the vectors of {record.origin.level}s; whole texts are compared: leave --level out")
