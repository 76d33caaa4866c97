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

from regard.disk import check_writable, flush, unwritable
from regard.errors import InputError

Vectors = Float[np.ndarray, "N D"]
Row = tuple[int | str, ...]
"""What a vector is of: a value for each column."""

NUMBERS = ("line", "place")
"""Columns that hold numbers; all others hold text."""

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class VectorFile(Protocol):
    """Takes vectors with what they are of."""

    def write(self, rows: Sequence[Row], vectors: Vectors) -> None: ...


def check_form(path: str | Path) -> Path:
    """The path, if vectors can be written there."""
    place = Path(path)
    if place.suffix.lower() not in FORMS:
        found = f"unknown suffix '{place.suffix}'" if place.suffix else "no suffix"
        raise InputError(f"{place}: {found}; known: {', '.join(FORMS)}")
    check_writable(place)
    return place


@contextmanager
def vector_file(path: Path, width: int, columns: Sequence[str]) -> Iterator[VectorFile]:
    """A file for vectors of this width; it takes its place when all of them are written."""
    asides = [path.with_name(f"{path.name}.new")]
    index = path.with_suffix(".tsv") if path.suffix.lower() == ".npy" and columns != TEXTS else None
    if index is not None:
        asides.append(index.with_name(f"{index.name}.new"))
    try:
        with ExitStack() as opened:
            yield FORMS[path.suffix.lower()](opened, asides, width, columns)
        for aside in asides[::-1]:
            flush(aside)
            aside.replace(aside.with_name(aside.name.removesuffix(".new")))
        flush(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        for aside in asides:
            aside.unlink(missing_ok=True)


TEXTS = ("line", "text")
"""Columns of whole texts, whose vectors are in the order of the lines: their array needs no index."""


class Npy:
    """An array whose length is written last, into room that its header keeps for that."""

    def __init__(self, opened: ExitStack, asides: Sequence[Path], width: int, columns: Sequence[str]) -> None:
        self.width, self.count = width, 0
        self.array = opened.enter_context(asides[0].open("w+b"))
        self.index = opened.enter_context(asides[1].open("w", encoding="utf-8")) if len(asides) > 1 else None
        self._header()
        self.start = self.array.tell()
        opened.callback(self._close)
        if self.index is not None:
            self.index.write("\t".join(columns) + "\n")

    def write(self, rows: Sequence[Row], vectors: Vectors) -> None:
        assert len(rows) == len(vectors), (len(rows), len(vectors))
        self.array.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.count += len(vectors)
        if self.index is not None:
            self.index.writelines("\t".join(str(value).translate(ESCAPES) for value in row) + "\n" for row in rows)

    def _header(self) -> None:
        described = {"descr": "<f4", "fortran_order": False, "shape": (self.count, self.width)}
        np.lib.format.write_array_header_1_0(self.array, described)

    def _close(self) -> None:
        self.array.seek(0)
        self._header()
        assert self.array.tell() == self.start, "the header of a longer array needs more room"


class Parquet:
    """A table with a column for each thing there is to say of a vector, and the vectors."""

    def __init__(self, opened: ExitStack, asides: Sequence[Path], width: int, columns: Sequence[str]) -> None:
        self.width = width
        kinds = [(name, pa.int64() if name in NUMBERS else pa.string()) for name in columns]
        self.schema = pa.schema([*kinds, ("vector", pa.list_(pa.float32(), width))])
        self.table: Any = opened.enter_context(pq.ParquetWriter(asides[0], self.schema))

    def write(self, rows: Sequence[Row], vectors: Vectors) -> None:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        columns = [pa.array(values) for values in zip(*rows, strict=True)]
        lists = pa.FixedSizeListArray.from_arrays(flat, self.width)
        if rows:
            self.table.write_table(pa.table([*columns, lists], schema=self.schema))


FORMS: dict[str, Any] = {".npy": Npy, ".parquet": Parquet}
