"""Vectors on the disk, written as they come and there whole or not at all.

.npy        one float32 array (vectors, width); of words and tokens a .tsv beside it says which they are, line by line
.parquet    a table: what each vector is of, and the vector as a list of fixed length
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

from regard.disk import check_writable, convert_write_errors, fsync_path
from regard.errors import InputError

Vectors = Float[np.ndarray, "N D"]
VectorMetadata = tuple[int | str, ...]
"""What a vector is of: a value for each column."""

INTEGER_COLUMNS = ("line", "place")
"""Columns that hold numbers; all others hold text."""

TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class VectorWriter(Protocol):
    """Takes vectors with what they are of."""

    def write(self, metadata: Sequence[VectorMetadata], vectors: Vectors) -> None: ...


def check_vector_path(path: str | Path) -> Path:
    """The path, if vectors can be written there."""
    place = Path(path)
    if place.suffix.lower() not in VECTOR_WRITERS:
        found = f"unknown suffix '{place.suffix}'" if place.suffix else "no suffix"
        raise InputError(f"{place}: {found}; known: {', '.join(VECTOR_WRITERS)}")
    check_writable(place)
    return place


@contextmanager
def open_vector_file(path: Path, width: int, columns: Sequence[str]) -> Iterator[VectorWriter]:
    """A file for vectors of this width; it takes its place when all of them are written."""
    asides = [path.with_name(f"{path.name}.new")]
    index = path.with_suffix(".tsv") if path.suffix.lower() == ".npy" and columns != TEXT_VECTOR_COLUMNS else None
    if index is not None:
        asides.append(index.with_name(f"{index.name}.new"))
    try:
        with convert_write_errors(path):
            with ExitStack() as opened:
                yield VECTOR_WRITERS[path.suffix.lower()](opened, asides, width, columns)
            for aside in asides[::-1]:
                fsync_path(aside)
                aside.replace(aside.with_name(aside.name.removesuffix(".new")))
            fsync_path(path.parent)
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)


TEXT_VECTOR_COLUMNS = ("line", "text")
"""Columns of whole texts, whose vectors are in the order of the lines: their array needs no index."""


class NpyVectorWriter:
    """An array whose length is written last, into room that its header keeps for that."""

    def __init__(
        self, exit_stack: ExitStack, temporary_paths: Sequence[Path], width: int, columns: Sequence[str]
    ) -> None:
        self.width, self.n_vectors = width, 0
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
        if self.index_file is not None:
            self.index_file.writelines(
                "\t".join(str(value).translate(TSV_ESCAPES) for value in row) + "\n" for row in metadata
            )

    def _write_header(self) -> None:
        described = {"descr": "<f4", "fortran_order": False, "shape": (self.n_vectors, self.width)}
        np.lib.format.write_array_header_1_0(self.array_file, described)

    def _finish(self) -> None:
        self.array_file.seek(0)
        self._write_header()
        assert self.array_file.tell() == self.data_start, "the header of a longer array needs more room"


class ParquetVectorWriter:
    """A table with a column for each thing there is to say of a vector, and the vectors."""

    def __init__(
        self, exit_stack: ExitStack, temporary_paths: Sequence[Path], width: int, columns: Sequence[str]
    ) -> None:
        self.width = width
        kinds = [(name, pa.int64() if name in INTEGER_COLUMNS else pa.string()) for name in columns]
        self.schema = pa.schema([*kinds, ("vector", pa.list_(pa.float32(), width))])
        self.parquet_writer: Any = exit_stack.enter_context(pq.ParquetWriter(temporary_paths[0], self.schema))

    def write(self, metadata: Sequence[VectorMetadata], vectors: Vectors) -> None:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        columns = [pa.array(values) for values in zip(*metadata, strict=True)]
        lists = pa.FixedSizeListArray.from_arrays(flat, self.width)
        if metadata:
            self.parquet_writer.write_table(pa.table([*columns, lists], schema=self.schema))


VECTOR_WRITERS: dict[str, Any] = {".npy": NpyVectorWriter, ".parquet": ParquetVectorWriter}
