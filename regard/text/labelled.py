"""Labelled text: one text, or a pair of them, and the label that goes with it, from tables.

Reads, checks and counts; a label is text here, whether it names a class or writes a score: the task decides which.
Nothing is left out unless the caller says so, and then a warning counts it. Blanks around a label are no part of it,
so that "1 " and "1" are one class. Called by the classification task for training and for evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import check_readable, file_format
from regard.text.tables import (
    TableRow,
    filter_empty_rows,
    quote_names,
    read_column_names,
    read_rows,
    split_path_and_columns,
)

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
"""What columns of text are called, GLUE's names among them; the first entry wins all of which a file has."""
LABEL_COLUMNS = ("label", "score", "class", "gold_label", "is_duplicate", "quality")
KNOWN_COLUMNS = {name for names in (*TEXT_COLUMNS, LABEL_COLUMNS) for name in names}

LabelValidator = Callable[[str], str]
"""What is wrong with a label, and what to do about it; nothing where it is right."""


class LabelledExample(NamedTuple):
    """A text, the text beside it ("" where there is one alone), and their label."""

    text: str
    pair: str
    label: str


class _LabelledTable(NamedTuple):
    """One table, as rows of two values or three."""

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
    """The examples of all tables in order, two columns (text, label) or three (text, pair, label) of each.

    A table's columns are named after its path (``reviews.tsv:text,stars``), or else in `columns`; where neither
    says, they are known by what the first line calls them (see `TEXTS` and `LABELS`), in upper or lower case. A label
    with a `problem` is an error that names its line.
    """
    if len(columns) not in (0, *COLUMN_COUNTS):
        raise ConfigError(f"columns: expected {EXPECTED_COLUMNS}, found {len(columns)}: {', '.join(columns)}")
    return _read_complete_examples(_open_tables(data, tuple(columns)), skip_empty, validate_label)


def labelled_paths(data: Sequence[str]) -> list[Path]:
    """The files that `read_labelled` would read."""
    return [Path(_split_item(item)[0]) for item in data]


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    return split_path_and_columns(item, COLUMN_COUNTS, EXPECTED_COLUMNS)


def _open_tables(data: Sequence[str], columns: tuple[str, ...]) -> list[_LabelledTable]:
    """The tables and their columns, which are equally many in all of them."""
    if not data:
        raise ConfigError("no data; name a table of texts and labels, as in train.tsv")
    parts: list[_LabelledTable] = []
    for item in data:
        path, own_columns = _split_item(item)
        check_readable(path)
        chosen = own_columns or columns or _detect_columns(path)
        parts.append(
            _LabelledTable(
                path, len(chosen), read_rows(path, chosen, numeric_columns=chosen[-1:], require_equal_fields=True)
            )
        )
        if len(chosen) != parts[0].n_columns:
            here, there = ("one text", "two") if len(chosen) == 2 else ("two texts", "one")
            fix = "a model reads one kind: ask for as many columns of each"
            raise DataError(path, f"{here} a line, but {parts[0].path} has {there}; {fix}")
    return parts


def _detect_columns(path: str) -> tuple[str, ...]:
    """The columns with well-known names, as the file itself spells them."""
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
    how = "by name" if file_format(path) == "jsonl" else "by name or number as in 2,1"
    found = f"no column known for {missing}; {holder} holds {quote_names(names)}"
    raise DataError(path, f"{found}; pass --columns TEXT,LABEL (or TEXT,PAIR,LABEL), {how}")


def _read_complete_examples(
    tables: list[_LabelledTable], skip_empty: bool, validate_label: LabelValidator
) -> Iterator[LabelledExample]:
    """The examples that are whole; a part without any is an error."""
    for path, n_columns, table in tables:
        sides = LabelledExample._fields if n_columns == 3 else ("text", "label")
        examples = _reject_header(path, table) if file_format(path) in ("tsv", "csv") else table
        sound = _reject_invalid_labels(path, examples, validate_label)
        for text, *pair, label in filter_empty_rows(sound, sides, [path] * n_columns, "examples", skip_empty):
            yield LabelledExample(text, "".join(pair), label.strip())


def _reject_header(path: str, table: Iterator[TableRow]) -> Iterator[TableRow]:
    """The rows themselves; a header among them, because its columns are asked for by number, is an error."""
    for line, values in table:
        if line == 1 and all(value.strip().lower() in KNOWN_COLUMNS for value in values):
            fix = f"ask for the columns by name, as in {path}:{','.join(values)}"
            raise DataError(path, f"a header, {quote_names(values)}, where an example was expected; {fix}", line)
        yield TableRow(line, values)


def _reject_invalid_labels(path: str, table: Iterator[TableRow], validate_label: LabelValidator) -> Iterator[TableRow]:
    """The rows themselves, those that are whole with a label that is right."""
    for line, values in table:
        if all(map(str.strip, values)) and (wrong := validate_label(values[-1].strip())):
            raise DataError(path, wrong, line)
        yield TableRow(line, values)
