"""Columns of tables: a row, and the columns of a file that a user names, by header or by number from 1.

Called by the readers of tables (tables.py, parquet.py) and by whoever names the columns of a file in a message.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError, did_you_mean

MAX_SHOWN_CHARACTERS = 40
"""Characters of a name that a message repeats: if the header is missing, a name is a whole sentence."""
MAX_SHOWN_NAMES = 20
"""Names that a message repeats."""
MAX_NUMBER_DIGITS = 9
"""Digits of a column's number."""


class TableRow(NamedTuple):
    """The line a row starts on (in Parquet: its number), and its text in the requested columns."""

    line: int
    values: tuple[str, ...]


def quote_names(names: Sequence[str]) -> str:
    """Return names for a message: quoted, and shortened; of many, the first."""
    quoted = [f"'{name[:MAX_SHOWN_CHARACTERS]}'" for name in names[:MAX_SHOWN_NAMES]]
    more = [f"... ({len(names):,} in all)"] if len(names) > MAX_SHOWN_NAMES else []
    return ", ".join(quoted + more) or "nothing"


def suggest_name(name: str, names: Sequence[str], fallback: str) -> str:
    """Return the most similar name as a suggestion, or else the fallback."""
    close = difflib.get_close_matches(name, names[:1000], n=1)
    return did_you_mean(name, close) if close else fallback


def is_column_number(column: str) -> bool:
    """Return True for a column that is given by its number."""
    return column.isascii() and column.isdecimal()


def column_index(path: str | Path, column: str, names: list[str] | None, names_location: str = "the first line") -> int:
    """Return the index of a column; a file without a header has no names."""
    if is_column_number(column):
        return _parse_column_number(path, column, names)
    assert names is not None, column
    if names.count(column) > 1:
        raise DataError(path, f"column '{column}' occurs {names.count(column)} times; ask for it by number")
    if column not in names:
        fix = "without a header, ask by number, as in 1,2"
        raise DataError(
            path,
            f"no column '{column}'; {names_location} holds {quote_names(names)}; {suggest_name(column, names, fix)}",
        )
    return names.index(column)


def _parse_column_number(path: str | Path, column: str, names: list[str] | None) -> int:
    if len(column) > MAX_NUMBER_DIGITS:
        raise DataError(path, f"no column {column[:MAX_NUMBER_DIGITS]}...; columns are counted from 1")
    number = int(column)
    if number == 0:
        raise DataError(path, "no column 0; columns are counted from 1")
    if names is not None and number > len(names):
        raise DataError(path, f"no column {number}; there are {len(names)}")
    return number - 1
