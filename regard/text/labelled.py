"""Labelled text from tables: a text, or a pair of texts, and its label.

Reads, checks and counts; a label is text here, whether it is a class or a score: the task decides which.
Nothing is left out unless the caller asks for it, and then a warning counts it. Labels are stripped of white space, so
that "1 " and "1" are one class. Called by the classification task for training and for evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import check_readable, file_format
from regard.text.table_columns import TableRow, quote_names
from regard.text.tables import filter_empty_rows, read_column_names, read_rows, split_path_and_columns

EXPECTED_COLUMNS = "text and label, or text, pair and label"
COLUMN_COUNTS = (2, 3)
TEXT_COLUMNS = (
    ("text", "pair"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("#1 string", "#2 string"),
    ("text",),
    ("sentence",),
)
"""Known names of text columns, GLUE's among them; the first entry whose names a file has all of is used."""
LABEL_COLUMNS = ("label", "score", "class", "gold_label", "is_duplicate", "quality")
KNOWN_COLUMNS = {name for names in (*TEXT_COLUMNS, LABEL_COLUMNS) for name in names}

LabelValidator = Callable[[str], str]
"""Returns the problem of a label with its fix, or "" for a valid label."""


class LabelledExample(NamedTuple):
    """A text, the second text of its pair ("" for a single text), and the label."""

    text: str
    pair: str
    label: str


class _LabelledTable(NamedTuple):
    """One table, as rows of two or three values."""

    path: str
    n_columns: int
    rows: Iterator[TableRow]


def read_labelled_examples(
    data: Sequence[str],
    columns: Sequence[str] = (),
    *,
    skip_empty: bool = False,
    validate_label: LabelValidator = lambda _: "",
) -> Iterator[LabelledExample]:
    """Yield the examples of all tables in order, from two columns (text, label) or three (text, pair, label) of each.

    A table's columns are named after its path (``reviews.tsv:text,stars``), or else in `columns`; by default they are
    recognised by the names in the first line (see `TEXT_COLUMNS` and `LABEL_COLUMNS`), in upper or lower case. A label
    for which `validate_label` returns a problem is an error that names its line.
    """
    if len(columns) not in (0, *COLUMN_COUNTS):
        raise ConfigError(f"columns: expected {EXPECTED_COLUMNS}, found {len(columns)}: {', '.join(columns)}")
    return _read_complete_examples(_open_tables(data, tuple(columns)), skip_empty, validate_label)


def labelled_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_labelled_examples` would read."""
    return [Path(_split_item(item)[0]) for item in data]


def choose_columns(item: str, columns: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns that are read of a table: named after its path, or else given, or else recognised."""
    path, own_columns = _split_item(item)
    return own_columns or tuple(columns) or _detect_columns(path)


def suggest_swapped_columns(item: str, columns: Sequence[str] = ()) -> str:
    """Return how to ask for the columns of a table with text and label swapped."""
    path, own_columns = _split_item(item)
    text, *pair, label = choose_columns(item, columns)
    swapped = ",".join((label, *pair, text))
    return f"{path}:{swapped}" if own_columns else f"--columns {swapped}"


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    return split_path_and_columns(item, COLUMN_COUNTS, EXPECTED_COLUMNS)


def _open_tables(data: Sequence[str], columns: tuple[str, ...]) -> list[_LabelledTable]:
    """Return the tables with their columns, whose number must be the same for all tables."""
    if not data:
        raise ConfigError("no data; name a table of texts and labels, as in train.tsv")
    parts: list[_LabelledTable] = []
    for item in data:
        path, _ = _split_item(item)
        check_readable(path)
        chosen = choose_columns(item, columns)
        parts.append(
            _LabelledTable(
                path, len(chosen), read_rows(path, chosen, numeric_columns=chosen[-1:], require_equal_fields=True)
            )
        )
        if len(chosen) != parts[0].n_columns:
            n_here, n_first = ("one text", "two") if len(chosen) == 2 else ("two texts", "one")
            fix = "all tables must be of one kind: name as many columns of each"
            raise DataError(path, f"{n_here} a line, but {parts[0].path} has {n_first}; {fix}")
    return parts


def _detect_columns(path: str) -> tuple[str, ...]:
    """Return the columns with known names, as the file spells them."""
    names = read_column_names(path)
    if not names:
        raise DataError(path, "the file is empty: give one with texts and labels")
    spelled = {name.strip().lower(): name for name in reversed(names)}
    texts = next((known for known in TEXT_COLUMNS if all(name in spelled for name in known)), ())
    label = next((known for known in LABEL_COLUMNS if known in spelled), None)
    if texts and label is not None:
        return tuple(spelled[name] for name in (*texts, label))
    missing = "label" if texts else "text" if label else "text and label"
    holder = "the file" if file_format(path) == "parquet" else "the first line"
    column_reference = "by name" if file_format(path) == "jsonl" else "by name or number as in 2,1"
    problem = f"no column known for {missing}; {holder} holds {quote_names(names)}"
    raise DataError(path, f"{problem}; pass --columns TEXT,LABEL (or TEXT,PAIR,LABEL), {column_reference}")


def _read_complete_examples(
    tables: list[_LabelledTable], skip_empty: bool, validate_label: LabelValidator
) -> Iterator[LabelledExample]:
    """Yield the complete examples; a table without any is an error."""
    for path, n_columns, table in tables:
        sides = LabelledExample._fields if n_columns == 3 else ("text", "label")
        examples = _reject_header(path, table) if file_format(path) in ("tsv", "csv") else table
        valid = _reject_invalid_labels(path, examples, validate_label)
        for text, *pair, label in filter_empty_rows(valid, sides, [path] * n_columns, "examples", skip_empty):
            yield LabelledExample(text, "".join(pair), label.strip())


def _reject_header(path: str, table: Iterator[TableRow]) -> Iterator[TableRow]:
    """Yield the rows; a header among them, because columns are given by number, is an error."""
    for line, values in table:
        if line == 1 and all(value.strip().lower() in KNOWN_COLUMNS for value in values):
            fix = f"ask for the columns by name, as in {path}:{','.join(values)}"
            raise DataError(path, f"a header, {quote_names(values)}, where an example was expected; {fix}", line)
        yield TableRow(line, values)


def _reject_invalid_labels(path: str, table: Iterator[TableRow], validate_label: LabelValidator) -> Iterator[TableRow]:
    """Yield the rows; a complete row with an invalid label is an error."""
    for line, values in table:
        if all(map(str.strip, values)) and (problem := validate_label(values[-1].strip())):
            raise DataError(path, problem, line)
        yield TableRow(line, values)
