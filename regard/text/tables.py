"""Tables of text: chosen columns of TSV, CSV, JSONL and Parquet files, row by row.

A column is a name, or a number counted from 1 as in cut and awk. If a TSV or CSV column is given by name, the
first line is a header; if all are numbers, it is a row like the others. An empty line and a null are rows of empty
text: `filter_empty_rows` refuses them or leaves them out. `read_objects` gives rows with values of any type. Called
by pairs.py, labelled.py and squad.py; parquet.py reads Parquet, json_values.py the objects of JSONL.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard import progress
from regard.errors import DataError
from regard.text.files import STDIN, TABLE_SUFFIXES, file_format, read_lines
from regard.text.json_values import get_json_value, json_value_to_text, parse_json_object
from regard.text.limits import max_line_bytes, too_large_error
from regard.text.parquet import read_parquet_names, read_parquet_objects, read_parquet_rows
from regard.text.table_columns import TableRow, column_index, is_column_number

Record = tuple[int, list[str]]


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
            return read_parquet_rows(path, columns, numeric_columns)
    raise _not_a_table_error(path)


def read_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of JSONL (also from standard input) or Parquet, by name; an empty line is an empty object."""
    match "jsonl" if str(path) == STDIN else file_format(path):
        case "jsonl":
            numbered = enumerate(read_lines(path), start=1)
            return ((number, parse_json_object(path, number, line) if line else {}) for number, line in numbered)
        case "parquet":
            return read_parquet_objects(path)
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
            return read_parquet_names(path)
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
        raise DataError(paths[0], f"no {unit}; no line has {_join_words([f'a {name}' for name in names], 'and')}")
    if n_empty:
        counts = f"left out {n_empty:,} of {n_kept + n_empty:,} {unit}"
        progress.warn(f"{', '.join(dict.fromkeys(paths))}: {counts}: empty {_join_words(names, 'or')}")


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
    limit, start, n_characters = max_line_bytes(), 1, 0
    csv.field_size_limit(limit)

    def count_lines() -> Iterator[str]:
        nonlocal n_characters
        for line in read_lines(path):
            n_characters += len(line) + 1
            if n_characters > limit:
                raise too_large_error(path, "a record", "close its quotes", line=start)
            yield f"{line}\n"

    reader = csv.reader(count_lines(), strict=True)
    try:
        for fields in reader:
            yield start, fields
            start, n_characters = reader.line_num + 1, 0
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        fault = "a quote is opened and never closed" if unclosed else f"not CSV: {str(error).partition(' - ')[0]}"
        raise DataError(path, f'{fault}; a quote inside a field is written ""', start) from None


def _select_columns(path: str | Path, columns: Sequence[str], records: Iterator[Record]) -> Iterator[TableRow]:
    """Yield the requested fields of every record; the first record is a header if a column is given by name."""
    names: list[str] | None = None
    if not all(map(is_column_number, columns)):
        header = next(records, None)
        if header is None:
            return
        names = header[1]
    indices = [column_index(path, column, names) for column in columns]
    last = max(indices)
    for line, fields in records:
        if not fields:
            yield TableRow(line, ("",) * len(indices))
        elif len(fields) > last:
            yield TableRow(line, tuple([fields[index] for index in indices]))
        else:
            problem = f"{_describe_field_count(fields)}, too few for column {columns[indices.index(last)]}"
            raise DataError(path, f"{problem}; {_separator_hint(path)}", line)


def _read_jsonl_rows(path: str | Path, keys: Sequence[str], numeric_columns: Collection[str]) -> Iterator[TableRow]:
    for number, line in enumerate(read_lines(path), start=1):
        entry = parse_json_object(path, number, line) if line else dict.fromkeys(keys, "")
        values = ((key, get_json_value(path, number, entry, key)) for key in keys)
        yield TableRow(
            number,
            tuple([json_value_to_text(path, number, key, value, key in numeric_columns) for key, value in values]),
        )
