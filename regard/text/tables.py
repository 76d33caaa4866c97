"""Tables of text: chosen columns of TSV, CSV, JSONL and Parquet files, row by row.

A column is a name, or a number counted from 1 as in cut and awk. Where a TSV or CSV column is asked for by name,
the first line is a header; where all are numbers, it is a row like the others. An empty line and a null are rows
of empty text: what to do with those is the caller's choice. Called by pairs.py and by whoever reads labelled text.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DataError, did_you_mean
from regard.text.files import TABLES, kind, lines, open_whole

FIELD_LIMIT = 1 << 24
"""Characters in one CSV field; the library's own limit, 131,072, is shorter than a long document."""
SHOWN = 40
"""Characters of a name that a message repeats: where the header is missing, a name is a whole sentence."""

Record = tuple[int, list[str]]


class Row(NamedTuple):
    """The line a row starts on (in Parquet: its number), and its text in the columns asked for."""

    line: int
    values: tuple[str, ...]


def rows(path: str | Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table, cut down to the columns, in the order in which those are asked for."""
    match kind(path):
        case "tsv":
            return _cut(path, columns, _tsv(path), "tabs")
        case "csv":
            return _cut(path, columns, _csv(path), "commas")
        case "jsonl":
            return _jsonl(path, columns)
        case "parquet":
            return _parquet(path, columns)
    raise DataError(path, f"not a table; the names of tables end in {', '.join(TABLES)}")


def _tsv(path: str | Path) -> Iterator[Record]:
    for number, line in enumerate(lines(path), start=1):
        yield number, line.split("\t") if line else []


def _csv(path: str | Path) -> Iterator[Record]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader((f"{line}\n" for line in lines(path)), strict=True)
    start = 1
    try:
        for fields in reader:
            yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        fault = "a quote is opened and never closed" if unclosed else f"not CSV: {str(error).partition(' - ')[0]}"
        raise DataError(path, f'{fault}; a quote inside a field is written ""', start) from None


def _cut(path: str | Path, columns: Sequence[str], records: Iterator[Record], parted_by: str) -> Iterator[Row]:
    """The asked fields of every record; the first record is a header if a column has a name."""
    names: list[str] | None = None
    if not all(map(_is_number, columns)):
        header = next(records, None)
        if header is None:
            return
        names = header[1]
    places = [_place(path, column, names) for column in columns]
    last = max(places)
    for line, fields in records:
        if not fields:
            yield Row(line, ("",) * len(places))
        elif len(fields) > last:
            yield Row(line, tuple([fields[place] for place in places]))
        else:
            found = f"{len(fields)} field{'s' * (len(fields) > 1)}, too few for column {columns[places.index(last)]}"
            raise DataError(path, f"{found}; fields are parted by {parted_by}", line)


def _is_number(column: str) -> bool:
    return column.isascii() and column.isdecimal()


def _place(path: str | Path, column: str, names: list[str] | None, holder: str = "the first line") -> int:
    """The index of a column; a file without a header has no names."""
    if _is_number(column):
        return _counted(path, column, names)
    assert names is not None, column
    if names.count(column) > 1:
        raise DataError(path, f"column '{column}' is there {names.count(column)} times; ask for it by number")
    if column not in names:
        fix = "without a header, ask by number, as in 1,2"
        raise DataError(path, f"no column '{column}'; {holder} holds {_listed(column, names, fix)}")
    return names.index(column)


def _counted(path: str | Path, column: str, names: list[str] | None) -> int:
    number = int(column)
    if number == 0:
        raise DataError(path, "no column 0; columns are counted from 1")
    if names is not None and number > len(names):
        raise DataError(path, f"no column {number}; there are {len(names)}")
    return number - 1


def _listed(wanted: str, names: Sequence[str], fix: str) -> str:
    """The names there are, then the one that may be meant or else another way out."""
    listed = ", ".join(f"'{name[:SHOWN]}'" for name in names) or "nothing"
    close = difflib.get_close_matches(wanted, names, n=1)
    return f"{listed}; {did_you_mean(wanted, close) if close else fix}"


def _jsonl(path: str | Path, keys: Sequence[str]) -> Iterator[Row]:
    for number, line in enumerate(lines(path), start=1):
        entry = _object(path, number, line) if line else dict.fromkeys(keys, "")
        yield Row(number, tuple([_text(path, number, entry, key) for key in keys]))


def _object(path: str | Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not JSON: {str(error).lower()}; expected one object a line", number) from None
    if not isinstance(entry, dict):
        fix = "expected one object a line; unpack a list with: jq -c '.[]'"
        raise DataError(path, f"{_json_type(entry)}, not an object; {fix}", number)
    return entry


def _text(path: str | Path, number: int, entry: dict[str, Any], key: str) -> str:
    if key not in entry:
        raise DataError(
            path, f"no key '{key}'; the line holds {_listed(key, list(entry), 'name one of these')}", number
        )
    value = entry[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(path, f"'{key}' is {_json_type(value)}; expected a text", number)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(path, f"'{key}' holds half a character (a lone surrogate, \\ud800 to \\udfff)", number)
    return value


def _json_type(value: Any) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def _parquet(path: str | Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow  # slow to import, and only this needs it
    import pyarrow.parquet

    with open_whole(path) as raw:
        try:
            file = pyarrow.parquet.ParquetFile(raw)
            chosen = _parquet_columns(path, columns, file.schema_arrow)
            number = 0
            for batch in file.iter_batches(columns=list(dict.fromkeys(chosen))):
                for values in zip(*(batch.column(name).to_pylist() for name in chosen), strict=True):
                    number += 1
                    yield Row(number, tuple([value or "" for value in values]))
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                path, f"damaged, or not a parquet file: {str(error).partition(chr(10))[0].lower()}"
            ) from None


def _parquet_columns(path: str | Path, columns: Sequence[str], schema: Any) -> list[str]:
    """The names of the columns asked for by name or number, all of them text."""
    names: list[str] = schema.names
    chosen = [names[_place(path, column, names, "the file")] for column in columns]
    for name in chosen:
        found = schema.field(name).type
        inner = found.value_type if str(found).startswith("dictionary") else found
        if str(inner) not in ("string", "large_string", "string_view", "null"):
            raise DataError(path, f"column '{name}' holds {found}; expected text")
    return chosen
