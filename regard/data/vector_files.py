"""Files of embedding vectors, written incrementally and atomically.

.npy        one float32 array (vectors, width); for words and tokens a .tsv beside it with one line per vector
.parquet    a table: the metadata of each vector, and the vector as a list of fixed length

Both say what made the vectors, where that is known (vector_origin.py).

The vector of an empty text is NaN in every dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from regard.data.vector_origin import PARQUET_KEY, TextDigest, VectorOrigin, origin_path
from regard.disk import check_writable, convert_write_errors, fsync_path
from regard.errors import InputError

Vectors = Float[np.ndarray, "N D"]
VectorMetadata = tuple[int | str, ...]
"""The origin of a vector, a value for each column: line, text, word ..."""

INTEGER_COLUMNS = ("line", "place")
"""Columns of numbers; all others hold text."""

TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class VectorWriter(Protocol):
    """A writer of vectors with their metadata."""

    def write(self, metadata: Sequence[VectorMetadata], vectors: Vectors) -> None: ...


def check_vector_path(path: str | Path) -> Path:
    """Return the path, or raise an error if no vectors can be written there."""
    path = Path(path)
    if path.suffix.lower() not in VECTOR_WRITERS:
        problem = f"unknown suffix '{path.suffix}'" if path.suffix else "no suffix"
        raise InputError(f"{path}: {problem}; known: {', '.join(VECTOR_WRITERS)}")
    check_writable(path)
    return path


@contextmanager
def open_vector_file(
    path: Path, width: int, columns: Sequence[str], origin: VectorOrigin | None = None
) -> Iterator[VectorWriter]:
    """Open a file for vectors of this width; it is renamed to `path` at the end of the block."""
    is_npy = path.suffix.lower() == ".npy"
    temporary_paths = [path.with_name(f"{path.name}.new")]
    index = path.with_suffix(".tsv") if is_npy and columns != TEXT_VECTOR_COLUMNS else None
    if index is not None:
        temporary_paths.append(index.with_name(f"{index.name}.new"))
    try:
        with convert_write_errors(path):
            with ExitStack() as stack:
                writer = VECTOR_WRITERS[path.suffix.lower()](stack, temporary_paths, width, columns, origin)
                yield writer
            if is_npy and origin is not None:
                temporary_paths.append(origin_path(path).with_name(f"{origin_path(path).name}.new"))
                facts = {"vectors": writer.n_vectors, "texts": writer.digest.hexdigest()}
                temporary_paths[-1].write_text(origin.to_json(**facts) + "\n", encoding="utf-8")
            for temporary_path in temporary_paths[::-1]:
                fsync_path(temporary_path)
                temporary_path.replace(temporary_path.with_name(temporary_path.name.removesuffix(".new")))
            fsync_path(path.parent)
    finally:
        for temporary_path in temporary_paths:
            temporary_path.unlink(missing_ok=True)


TEXT_VECTOR_COLUMNS = ("line", "text")
"""Columns of whole texts, whose vectors are in the order of the lines and need no index."""


class NpyVectorWriter:
    """A .npy array whose length is written last, into the padding of its header."""

    def __init__(
        self,
        exit_stack: ExitStack,
        temporary_paths: Sequence[Path],
        width: int,
        columns: Sequence[str],
        origin: VectorOrigin | None,
    ) -> None:
        self.width, self.n_vectors, self.digest = width, 0, TextDigest()
        self.array_file = exit_stack.enter_context(temporary_paths[0].open("w+b"))
        self.index_file = (
            exit_stack.enter_context(temporary_paths[1].open("w", encoding="utf-8"))
            if len(temporary_paths) > 1
            else None
        )
        self._write_header()
        self.data_start = self.array_file.tell()
        exit_stack.callback(self._finish)
        if self.index_file is not None:
            self.index_file.write("\t".join(columns) + "\n")

    def write(self, metadata: Sequence[VectorMetadata], vectors: Vectors) -> None:
        assert len(metadata) == len(vectors), (len(metadata), len(vectors))
        self.array_file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.n_vectors += len(vectors)
        self.digest.update(str(row[-1]) for row in metadata)
        if self.index_file is not None:
            self.index_file.writelines(
                "\t".join(str(value).translate(TSV_ESCAPES) for value in row) + "\n" for row in metadata
            )

    def _write_header(self) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.n_vectors, self.width)}
        np.lib.format.write_array_header_1_0(self.array_file, header)

    def _finish(self) -> None:
        self.array_file.seek(0)
        self._write_header()
        assert self.array_file.tell() == self.data_start, "the header of the finished array is longer"


class ParquetVectorWriter:
    """A Parquet table with the metadata columns and the vectors."""

    def __init__(
        self,
        exit_stack: ExitStack,
        temporary_paths: Sequence[Path],
        width: int,
        columns: Sequence[str],
        origin: VectorOrigin | None,
    ) -> None:
        self.width = width
        kinds = [(name, pa.int64() if name in INTEGER_COLUMNS else pa.string()) for name in columns]
        stated = None if origin is None else {PARQUET_KEY: origin.to_json()}
        self.schema = pa.schema([*kinds, ("vector", pa.list_(pa.float32(), width))], metadata=stated)
        self.parquet_writer: Any = exit_stack.enter_context(pq.ParquetWriter(temporary_paths[0], self.schema))

    def write(self, metadata: Sequence[VectorMetadata], vectors: Vectors) -> None:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        columns = [pa.array(values) for values in zip(*metadata, strict=True)]
        lists = pa.FixedSizeListArray.from_arrays(flat, self.width)
        if metadata:
            self.parquet_writer.write_table(pa.table([*columns, lists], schema=self.schema))


VECTOR_WRITERS: dict[str, Any] = {".npy": NpyVectorWriter, ".parquet": ParquetVectorWriter}
