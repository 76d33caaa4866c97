"""Tables of text: chosen columns of TSV, CSV, JSONL and Parquet files, row by row.

A column is a name, or a number counted from 1 as in cut and awk. If a TSV or CSV column is given by name, the
first line is a header; if all are numbers, it is a row like the others. An empty line and a null are rows of empty
text: `filter_empty_rows` refuses them or leaves them out. `read_objects` gives rows with values of any type. Called
by pairs.py, labelled.py and, for JSON, tagged.py and squad.py.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard import progress
from regard.errors import DataError, did_you_mean
from regard.text.files import STDIN, TABLE_SUFFIXES, file_format, open_seekable, read_lines

MAX_CSV_FIELD_CHARACTERS = 1 << 24
"""Characters in one CSV field; the default of the csv module, 131,072, is shorter than a long document."""
MAX_SHOWN_CHARACTERS = 40
"""Characters of a name that a message repeats: if the header is missing, a name is a whole sentence."""
NARROW_FLOAT_TYPES = ("halffloat", "float")
"""Parquet's floats of 16 and 32 bits, whose shortest text is shorter than that of the same number in 64."""
INTEGER_TYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

Record = tuple[int, list[str]]


class TableRow(NamedTuple):
    """The line a row starts on (in Parquet: its number), and its text in the requested columns."""

    line: int
    values: tuple[str, ...]


def read_rows(
    path: str | Path,
    columns: Sequence[str],
    *,
    numeric_columns: Collection[str] = (),
    require_equal_fields: bool = False,
) -> Iterator[TableRow]:
    """Yield the rows of a table, with the requested columns in the requested order.

    Values in JSONL and Parquet must be text, except in `numeric_columns`, where a number or boolean is converted to
    text; with `require_equal_fields`, every line of a TSV or CSV must have as many fields as the first.
    """
    match file_format(path):
        case "tsv" | "csv":
            return _select_columns(
                path, columns, _read_equal_records(path) if require_equal_fields else _read_records(path)
            )
        case "jsonl":
            return _read_jsonl_rows(path, columns, numeric_columns)
        case "parquet":
            return _read_parquet(path, columns, numeric_columns)
    raise _not_a_table_error(path)


def read_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of JSONL (also from standard input) or Parquet, by name; an empty line is an empty object."""
    match "jsonl" if str(path) == STDIN else file_format(path):
        case "jsonl":
            numbered = enumerate(read_lines(path), start=1)
            return ((number, parse_json_object(path, number, line) if line else {}) for number, line in numbered)
        case "parquet":
            return _read_parquet_objects(path)
    raise DataError(path, "expected .jsonl or .parquet, whose rows have named values")


def read_column_names(path: str | Path) -> list[str]:
    """Return the column names of a table: the first line, the keys of the first JSONL object, or Parquet's names."""
    match file_format(path):
        case "tsv" | "csv":
            return next(_read_records(path), (1, []))[1]
        case "jsonl":
            numbered = enumerate(read_lines(path), start=1)
            return next((list(parse_json_object(path, number, line)) for number, line in numbered if line), [])
        case "parquet":
            with _open_parquet(path) as file:
                return list(file.schema_arrow.names)
    raise _not_a_table_error(path)


def split_path_and_columns(item: str, allowed_counts: Collection[int], expected: str) -> tuple[str, tuple[str, ...]]:
    """Split x.tsv:1,2 into the path and the columns after it, if any; a colon may also be part of the path."""
    path, colon, ending = item.rpartition(":")
    if not colon or file_format(path) == "text" or Path(item).exists():
        return item, ()
    columns = tuple(ending.split(","))
    if len(columns) not in allowed_counts or not all(columns):
        raise DataError(path, f"columns '{ending}'; expected {expected}, as in {path}:1,2")
    return path, columns


def filter_empty_rows(
    table_rows: Iterator[TableRow], names: Sequence[str], paths: Sequence[str], unit: str, skip_empty: bool
) -> Iterator[tuple[str, ...]]:
    """Yield the values of rows with text in every column; others are an error or, on request, left out and counted.

    Messages name columns by `names` and `paths`; it is an error if no row has text in every column.
    """
    n_kept = n_empty = 0
    for line, values in table_rows:
        if all(map(str.strip, values)):
            n_kept += 1
            yield values
        elif skip_empty:
            n_empty += 1
        else:
            name, path = next((n, p) for n, p, value in zip(names, paths, values, strict=True) if not value.strip())
            raise DataError(path, f"empty {name}; drop the line or pass --skip-empty", line)
    if n_kept == 0:
        raise DataError(
            paths[0], f"no {unit}; not one line holds {_join_words([f'a {name}' for name in names], 'and')}"
        )
    if n_empty:
        counts = f"left out {n_empty:,} of {n_kept + n_empty:,} {unit}"
        progress.warn(f"{', '.join(dict.fromkeys(paths))}: {counts}: empty {_join_words(names, 'or')}")


def quote_names(names: Sequence[str]) -> str:
    """Return names for a message: quoted, and shortened."""
    return ", ".join(f"'{name[:MAX_SHOWN_CHARACTERS]}'" for name in names) or "nothing"


def _join_words(words: Sequence[str], conjunction: str) -> str:
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def _not_a_table_error(path: str | Path) -> DataError:
    return DataError(path, f"not a table; the names of tables end in {', '.join(TABLE_SUFFIXES)}")


def _read_records(path: str | Path) -> Iterator[Record]:
    return _read_tsv(path) if file_format(path) == "tsv" else _read_csv(path)


def _separator_hint(path: str | Path) -> str:
    return f"fields are separated by {'tabs' if file_format(path) == 'tsv' else 'commas'}"


def _read_equal_records(path: str | Path) -> Iterator[Record]:
    """Yield the records of a file, all with as many fields as the first."""
    n_first = 0
    for line, fields in _read_records(path):
        n_first = n_first or len(fields)
        if fields and len(fields) != n_first:
            raise DataError(
                path,
                f"{_describe_field_count(fields)}, but the first line has {n_first}; {_separator_hint(path)}",
                line,
            )
        yield line, fields


def _describe_field_count(fields: Sequence[str]) -> str:
    return f"{len(fields)} field{'s' * (len(fields) > 1)}"


def _read_tsv(path: str | Path) -> Iterator[Record]:
    for number, line in enumerate(read_lines(path), start=1):
        yield number, line.split("\t") if line else []


def _read_csv(path: str | Path) -> Iterator[Record]:
    csv.field_size_limit(MAX_CSV_FIELD_CHARACTERS)
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    start = 1
    try:
        for fields in reader:
            yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        fault = "a quote is opened and never closed" if unclosed else f"not CSV: {str(error).partition(' - ')[0]}"
        raise DataError(path, f'{fault}; a quote inside a field is written ""', start) from None


def _select_columns(path: str | Path, columns: Sequence[str], records: Iterator[Record]) -> Iterator[TableRow]:
    """Yield the requested fields of every record; the first record is a header if a column is given by name."""
    names: list[str] | None = None
    if not all(map(_is_column_number, columns)):
        header = next(records, None)
        if header is None:
            return
        names = header[1]
    indices = [_column_index(path, column, names) for column in columns]
    last = max(indices)
    for line, fields in records:
        if not fields:
            yield TableRow(line, ("",) * len(indices))
        elif len(fields) > last:
            yield TableRow(line, tuple([fields[index] for index in indices]))
        else:
            problem = f"{_describe_field_count(fields)}, too few for column {columns[indices.index(last)]}"
            raise DataError(path, f"{problem}; {_separator_hint(path)}", line)


def _is_column_number(column: str) -> bool:
    return column.isascii() and column.isdecimal()


def _column_index(
    path: str | Path, column: str, names: list[str] | None, names_location: str = "the first line"
) -> int:
    """Return the index of a column; a file without a header has no names."""
    if _is_column_number(column):
        return _parse_column_number(path, column, names)
    assert names is not None, column
    if names.count(column) > 1:
        raise DataError(path, f"column '{column}' occurs {names.count(column)} times; ask for it by number")
    if column not in names:
        fix = "without a header, ask by number, as in 1,2"
        raise DataError(
            path,
            f"no column '{column}'; {names_location} holds {quote_names(names)}; {_suggest_name(column, names, fix)}",
        )
    return names.index(column)


def _parse_column_number(path: str | Path, column: str, names: list[str] | None) -> int:
    number = int(column)
    if number == 0:
        raise DataError(path, "no column 0; columns are counted from 1")
    if names is not None and number > len(names):
        raise DataError(path, f"no column {number}; there are {len(names)}")
    return number - 1


def _suggest_name(name: str, names: Sequence[str], fallback: str) -> str:
    """Return the most similar name as a suggestion, or else the fallback."""
    close = difflib.get_close_matches(name, names, n=1)
    return did_you_mean(name, close) if close else fallback


def _read_jsonl_rows(path: str | Path, keys: Sequence[str], numeric_columns: Collection[str]) -> Iterator[TableRow]:
    for number, line in enumerate(read_lines(path), start=1):
        entry = parse_json_object(path, number, line) if line else dict.fromkeys(keys, "")
        values = ((key, get_json_value(path, number, entry, key)) for key in keys)
        yield TableRow(
            number,
            tuple([json_value_to_text(path, number, key, value, key in numeric_columns) for key, value in values]),
        )


def parse_json_object(path: str | Path, line_number: int, line: str) -> dict[str, Any]:
    """Return the object in a line of JSONL."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not JSON: {str(error).lower()}; expected one object a line", line_number) from None
    if not isinstance(entry, dict):
        fix = "expected one object a line; unpack a list with: jq -c '.[]'"
        raise DataError(path, f"{describe_json_type(entry)}, not an object; {fix}", line_number)
    return entry


def get_json_value(path: str | Path, line_number: int, entry: dict[str, Any], key: str) -> Any:
    """Return the value of a key; the error for a missing key names the existing ones."""
    if key not in entry:
        problem = f"no key '{key}'; the line holds {quote_names(list(entry))}"
        raise DataError(path, f"{problem}; {_suggest_name(key, list(entry), 'name one of these')}", line_number)
    return entry[key]


def json_value_to_text(
    path: str | Path, line_number: int | None, key: str, value: Any, may_be_number: bool = False
) -> str:
    """Return a value as text: null is empty, and a number or boolean is converted where allowed."""
    if value is None:
        return ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            half = "half a character (a lone surrogate, \\ud800 to \\udfff)"
            raise DataError(path, f"'{key}' holds {half}; leave that character out", line_number)
        return value
    if may_be_number and isinstance(value, int | float):
        return _number_to_text(path, line_number, key, value)
    raise DataError(
        path, f"'{key}' is {describe_json_type(value)}; expected a text{' or a number' * may_be_number}", line_number
    )


def _number_to_text(path: str | Path, line_number: int | None, key: str, value: float) -> str:
    """Return 1, 3.8 or true; a non-finite number is an error."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        raise DataError(path, f"'{key}' is {value}; expected a text or a finite number", line_number) from None


def describe_json_type(value: Any) -> str:
    """Return the name of a JSON value's type for messages."""
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def _read_parquet(path: str | Path, columns: Sequence[str], numeric_columns: Collection[str]) -> Iterator[TableRow]:
    with _open_parquet(path) as file:
        chosen = _select_parquet_columns(path, columns, numeric_columns, file.schema_arrow)
        number = 0
        for batch in file.iter_batches(columns=list(dict.fromkeys(chosen))):
            texts = [_parquet_column_to_texts(path, name, batch.column(name), number) for name in chosen]
            for values in zip(*texts, strict=True):
                number += 1
                yield TableRow(number, tuple([value or "" for value in values]))


def _read_parquet_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _open_parquet(path) as file:
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        yield from enumerate(rows, start=1)


@contextlib.contextmanager
def _open_parquet(path: str | Path) -> Iterator[Any]:
    """Open a Parquet file for the duration of the block; its errors become one line."""
    import pyarrow  # slow to import, and used here only
    import pyarrow.parquet

    with open_seekable(path) as raw:
        try:
            yield pyarrow.parquet.ParquetFile(raw)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                path, f"damaged, or not a parquet file: {str(error).partition(chr(10))[0].lower()}"
            ) from None


def _select_parquet_columns(
    path: str | Path, columns: Sequence[str], numeric_columns: Collection[str], schema: Any
) -> list[str]:
    """Return the names of the requested columns, which must hold text or, where allowed, numbers."""
    names: list[str] = schema.names
    chosen = [names[_column_index(path, column, names, "the file")] for column in columns]
    for column, name in zip(columns, chosen, strict=True):
        may_be_number = column in numeric_columns
        arrow_type = schema.field(name).type
        if not (_is_text_type(arrow_type) or (may_be_number and _is_number_or_bool_type(arrow_type))):
            expected = f"expected text{' or numbers' * may_be_number}"
            raise DataError(path, f"column '{name}' holds {arrow_type}; {expected}; name another column")
    return chosen


def _parquet_column_to_texts(path: str | Path, name: str, column: Any, n_rows_before: int) -> list[str | None]:
    """Return a column as text; a narrow float by its shortest text, so that 3.8 does not become 3.799999952316284."""
    values: list[Any] = column.to_pylist()
    if _is_text_type(column.type):
        return values
    if str(_value_type(column.type)) in NARROW_FLOAT_TYPES:
        values = [None if text is None else float(text) for text in column.cast("string").to_pylist()]
    numbered = enumerate(values, start=n_rows_before + 1)
    return [None if value is None else _number_to_text(path, number, name, value) for number, value in numbered]


def _value_type(arrow_type: Any) -> Any:
    """Return the type of the values of a column, which may be dictionary-encoded."""
    return arrow_type.value_type if str(arrow_type).startswith("dictionary") else arrow_type


def _is_text_type(arrow_type: Any) -> bool:
    return str(_value_type(arrow_type)) in ("string", "large_string", "string_view", "null")


def _is_number_or_bool_type(arrow_type: Any) -> bool:
    return str(_value_type(arrow_type)) in (*INTEGER_TYPES, *NARROW_FLOAT_TYPES, "double", "bool")
