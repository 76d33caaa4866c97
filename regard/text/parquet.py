"""Parquet files: chosen columns as text, or whole rows, a few rows at a time.

Compression and dictionaries make a small file hold gigabytes: what the file declares about its pages is checked before
any is decompressed, and so few rows are read at once that the largest accepted values fit (limits.py). Called by
tables.py.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from regard.errors import DataError
from regard.text.files import open_seekable
from regard.text.json_values import number_to_text
from regard.text.limits import BLOCK_FACTOR, max_line_bytes, too_large_error
from regard.text.table_columns import MAX_SHOWN_CHARACTERS, TableRow, column_index

NARROW_FLOAT_TYPES = ("halffloat", "float")
"""Parquet's floats of 16 and 32 bits, whose shortest text is shorter than that of the same number in 64."""
INTEGER_TYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
PAGE_VALUES = 1024
"""Values after which writers begin a new page if the page is large; a page is decompressed whole."""
PAGE_HEADER = re.compile(rb"\x15[\x80-\xff]*[\x00-\x7f]\x15([\x80-\xff]*[\x00-\x7f])", re.DOTALL)
"""The type of a page and its decompressed size, which begin its header."""
MAX_LIST_VALUES = 1 << 16
"""Values of a list in one row, on average, at most."""
MAX_BATCH_ROWS = 1024
BATCH_FACTOR = 4
"""Rows read at once at least, and what they may take in units of the largest accepted value."""
BUFFER_BYTES = 1 << 20
"""Compressed bytes of a column that are read at a time."""


def read_parquet_rows(path: str | Path, columns: Sequence[str], numeric_columns: Collection[str]) -> Iterator[TableRow]:
    """Yield the rows of a file, with the requested columns as text."""
    with _open_parquet(path) as source:
        chosen = _select_columns(path, columns, numeric_columns, source.file.schema_arrow)
        number = 0
        for batch in source.iterate_batches(list(dict.fromkeys(chosen))):
            texts = [_column_to_texts(path, name, batch.column(name), number) for name in chosen]
            for values in zip(*texts, strict=True):
                number += 1
                yield TableRow(number, tuple([value or "" for value in values]))


def read_parquet_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row and its values by name."""
    with _open_parquet(path) as source:
        batches = source.iterate_batches(source.names)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)


def read_parquet_names(path: str | Path) -> list[str]:
    """Return the names of the columns."""
    with _open_parquet(path) as source:
        return source.names


class _ParquetSource(NamedTuple):
    """An open file, and its bytes."""

    path: str | Path
    file: Any
    raw: IO[bytes]

    @property
    def names(self) -> list[str]:
        return list(self.file.schema_arrow.names)

    def iterate_batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield these columns a few rows at a time: rows that take at most four times the largest accepted value."""
        value_bytes = [self._check_chunk(chunk, n_rows) for chunk, n_rows in self._column_chunks(columns)]
        n_rows = BATCH_FACTOR * max_line_bytes() // max([1, *value_bytes])
        yield from self.file.iter_batches(batch_size=min(max(n_rows, BATCH_FACTOR), MAX_BATCH_ROWS), columns=columns)

    def _column_chunks(self, columns: Collection[str]) -> Iterator[tuple[Any, int]]:
        """Yield the metadata of the chunks of these columns, one for each row group, and the rows of the group."""
        for group in map(self.file.metadata.row_group, range(self.file.metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                if chunk.path_in_schema in columns or chunk.path_in_schema.partition(".")[0] in columns:
                    yield chunk, group.num_rows

    def _check_chunk(self, chunk: Any, n_rows: int) -> int:
        """Return the bytes that a value of the chunk may take; refuse values and pages that are too large."""
        name, n_values = f"column '{chunk.path_in_schema[:MAX_SHOWN_CHARACTERS]}'", max(1, int(chunk.num_values))
        mean_bytes = int(chunk.total_uncompressed_size) // n_values
        if mean_bytes > max_line_bytes():
            raise too_large_error(self.path, f"{name}: a value", "split it")
        if min(chunk.total_uncompressed_size, PAGE_VALUES * mean_bytes) > BLOCK_FACTOR * max_line_bytes():
            raise too_large_error(self.path, f"{name}: a page", "write smaller ones", factor=BLOCK_FACTOR)
        if n_values > MAX_LIST_VALUES * max(1, n_rows):
            counts = f"{n_values:,} values in {n_rows:,} rows"
            raise DataError(self.path, f"{name}: {counts}; at most {MAX_LIST_VALUES:,} a row are read")
        dictionary_bytes = self._dictionary_bytes(chunk)
        if dictionary_bytes > BATCH_FACTOR * max_line_bytes():
            raise too_large_error(self.path, f"{name}: a dictionary", "write plain pages", factor=BATCH_FACTOR)
        return max(mean_bytes, dictionary_bytes)

    def _dictionary_bytes(self, chunk: Any) -> int:
        """Return the decompressed size of a dictionary, whose values may occur in every row at no cost to the file."""
        if not chunk.has_dictionary_page:
            return 0
        self.raw.seek(max(0, chunk.dictionary_page_offset))
        page_header = PAGE_HEADER.match(self.raw.read(16))
        return _parse_zigzag(page_header[1]) if page_header else int(chunk.total_uncompressed_size)


def _parse_zigzag(varint: bytes) -> int:
    """Return an integer of Thrift's compact protocol: seven bits a byte, the sign in the lowest."""
    return sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(varint)) >> 1


@contextlib.contextmanager
def _open_parquet(path: str | Path) -> Iterator[_ParquetSource]:
    """Open a Parquet file for the duration of the block; its errors become one line."""
    import pyarrow  # slow to import, and used here only
    import pyarrow.parquet

    with open_seekable(path) as raw:
        try:
            file = pyarrow.parquet.ParquetFile(raw, pre_buffer=False, buffer_size=BUFFER_BYTES)
            yield _ParquetSource(path, file, raw)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            problem = str(error).partition("\n")[0].lower()
            raise DataError(path, f"damaged, or not a parquet file: {problem}") from None


def _check_lengths(path: str | Path, name: str, values: Sequence[str | None], n_rows_before: int) -> None:
    """Refuse a text over the limit."""
    limit = max_line_bytes()
    for number, value in enumerate(values, start=n_rows_before + 1):
        if value is not None and len(value) > limit:
            raise too_large_error(path, f"column '{name}': a value", "split it", line=number)


def _select_columns(
    path: str | Path, columns: Sequence[str], numeric_columns: Collection[str], schema: Any
) -> list[str]:
    """Return the names of the requested columns, which must hold text or, where allowed, numbers."""
    names: list[str] = schema.names
    chosen = [names[column_index(path, column, names, "the file")] for column in columns]
    for column, name in zip(columns, chosen, strict=True):
        may_be_number = column in numeric_columns
        arrow_type = schema.field(name).type
        if not (_is_text_type(arrow_type) or (may_be_number and _is_number_or_bool_type(arrow_type))):
            expected = f"expected text{' or numbers' * may_be_number}"
            raise DataError(path, f"column '{name}' holds {arrow_type}; {expected}; name another column")
    return chosen


def _column_to_texts(path: str | Path, name: str, column: Any, n_rows_before: int) -> list[str | None]:
    """Return a column as text; a narrow float by its shortest text, so that 3.8 does not become 3.799999952316284."""
    values: list[Any] = column.to_pylist()
    if _is_text_type(column.type):
        _check_lengths(path, name, values, n_rows_before)
        return values
    if str(_value_type(column.type)) in NARROW_FLOAT_TYPES:
        values = [None if text is None else float(text) for text in column.cast("string").to_pylist()]
    numbered = enumerate(values, start=n_rows_before + 1)
    return [None if value is None else number_to_text(path, number, name, value) for number, value in numbered]


def _value_type(arrow_type: Any) -> Any:
    """Return the type of the values of a column, which may be dictionary-encoded."""
    return arrow_type.value_type if str(arrow_type).startswith("dictionary") else arrow_type


def _is_text_type(arrow_type: Any) -> bool:
    return str(_value_type(arrow_type)) in ("string", "large_string", "string_view", "null")


def _is_number_or_bool_type(arrow_type: Any) -> bool:
    return str(_value_type(arrow_type)) in (*INTEGER_TYPES, *NARROW_FLOAT_TYPES, "double", "bool")
