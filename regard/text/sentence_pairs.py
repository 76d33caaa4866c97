"""Sentences and pairs of sentences for vectors: plain lines, pairs, pairs with a hard negative, scored pairs.

    sentences.txt                            one sentence a line
    pairs.tsv      anchor positive           two texts of one meaning, or a question and its answer
    triples.tsv    anchor positive negative  and a text that looks alike but means something else
    scored.tsv     text text score           how similar two texts are, on any scale: to validate on

Reads, checks and counts; nothing is left out unless the caller asks for it, and then a warning counts it. Called by the
embedding task for training and for evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import TABLE_SUFFIXES, check_readable, file_format, read_lines
from regard.text.labelled import LABEL_COLUMNS, TEXT_COLUMNS
from regard.text.table_columns import TableRow, quote_names
from regard.text.tables import filter_empty_rows, read_column_names, read_rows, split_path_and_columns

EXPECTED_COLUMNS = "two texts, or two and a hard negative, or two and a score"
COLUMN_COUNTS = (2, 3)
PAIR_COLUMNS = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "answer"),
    ("question", "answer"),
    ("source", "target"),
    ("sent0", "sent1"),
    *(names for names in TEXT_COLUMNS if len(names) == 2),
)
"""Known names of the two texts; the first entry whose names a file has all of is used."""
NEGATIVE_COLUMNS = ("negative", "hard_neg")
SCORE_COLUMNS = (*LABEL_COLUMNS, "similarity", "similarity_score", "stars")
KNOWN_COLUMNS = {*(name for names in PAIR_COLUMNS for name in names), *NEGATIVE_COLUMNS, *SCORE_COLUMNS}

PairKind = Literal["sentences", "pairs", "triples", "scored"]
"""The content of a file."""

N_ROWS_TO_JUDGE = 2
"""Rows of a table without known names that are read to distinguish scores from texts: one may be a header."""


class SentencePair(NamedTuple):
    """An anchor with its positive, its hard negative and its score; the empty string for what a file does not have."""

    anchor: str
    positive: str = ""
    negative: str = ""
    score: str = ""


SIDES: dict[PairKind, tuple[str, ...]] = {
    "sentences": ("anchor",),
    "pairs": ("anchor", "positive"),
    "triples": ("anchor", "positive", "negative"),
    "scored": ("anchor", "positive", "score"),
}
"""The fields that each kind of file fills."""


class _Source(NamedTuple):
    """One file with the columns to read and their meaning."""

    path: str
    columns: tuple[str, ...]
    kind: PairKind


def sentence_pair_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_sentence_pairs` would read."""
    return [Path(_split_item(item)[0]) for item in data]


def find_pair_kind(data: Sequence[str], columns: Sequence[str] = ()) -> PairKind:
    """Return the kind of content of the files, which must be the same for all of them."""
    return _open_sources(data, tuple(columns))[0].kind


def read_sentence_pairs(
    data: Sequence[str], columns: Sequence[str] = (), *, skip_empty: bool = False
) -> Iterator[SentencePair]:
    """Yield the examples of all files in order.

    A table's columns are named after its path (``nli.tsv:premise,hypothesis``), or else in `columns`; by default they
    are recognised by the names in the first line, in upper or lower case, or else they are all columns of a TSV or CSV
    file with two or three. A third column of numbers holds scores, one of texts hard negatives.
    """
    sources = _open_sources(data, tuple(columns))
    return (example for source in sources for example in _read_source(source, skip_empty))


def _open_sources(data: Sequence[str], columns: tuple[str, ...]) -> list[_Source]:
    if len(columns) not in (0, *COLUMN_COUNTS):
        raise ConfigError(f"columns: expected {EXPECTED_COLUMNS}, found {len(columns)}: {', '.join(columns)}")
    if not data:
        raise ConfigError("no data; name a table of pairs, as in pairs.tsv, or a text file of sentences")
    sources = [_open_source(item, columns) for item in data]
    for source in sources[1:]:
        if source.kind != sources[0].kind:
            mismatch = f"{source.kind}, but {sources[0].path} holds {sources[0].kind}"
            raise DataError(source.path, f"holds {mismatch}; give files of one kind, or name the columns of each")
    if sources[0].kind == "sentences" and len(sources) > 1:
        fix = "give one file of sentences, or pairs as a table, as by: paste a.txt b.txt > pairs.tsv"
        raise DataError(sources[1].path, f"a second text file: sentences, or translations of the first? {fix}")
    return sources


def _open_source(item: str, columns: tuple[str, ...]) -> _Source:
    path, own_columns = _split_item(item)
    check_readable(path)
    if file_format(path) == "text":
        if columns:
            raise ConfigError(f"columns: {', '.join(columns)}: {path} is plain text, which has none; leave them out")
        return _Source(path, (), "sentences")
    chosen = own_columns or columns or _detect_columns(path)
    return _Source(path, chosen, _judge_kind(path, chosen))


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    return split_path_and_columns(item, COLUMN_COUNTS, EXPECTED_COLUMNS)


def _detect_columns(path: str) -> tuple[str, ...]:
    """Return the columns with known names, as the file spells them, or all columns of a TSV or CSV file."""
    names = read_column_names(path)
    if not names:
        raise DataError(path, "the file is empty: give one with pairs of texts")
    spelled = {name.strip().lower(): name for name in reversed(names)}
    texts = next((known for known in PAIR_COLUMNS if all(name in spelled for name in known)), ())
    if texts:
        third = [known for known in (*NEGATIVE_COLUMNS, *SCORE_COLUMNS) if known in spelled][:1]
        return tuple(spelled[name] for name in (*texts, *third))
    if file_format(path) not in ("tsv", "csv"):
        raise DataError(
            path, f"no columns known for two texts; it holds {quote_names(names)}; pass --columns ANCHOR,POSITIVE"
        )
    if len(names) not in COLUMN_COUNTS:
        fix = f"sentences by themselves are a text file; tables are {', '.join(TABLE_SUFFIXES)}"
        fix = fix if len(names) == 1 else "pass --columns 1,2 with the numbers of the two texts"
        raise DataError(path, f"{len(names)} column{'s' * (len(names) > 1)}; expected {EXPECTED_COLUMNS}; {fix}")
    return tuple(str(number) for number in range(1, len(names) + 1))


def _judge_kind(path: str, columns: tuple[str, ...]) -> PairKind:
    """Return the kind of content of the columns: by the name of the third, or if that is unknown by the first rows."""
    if len(columns) == 2:
        return "pairs"
    name = columns[2].strip().lower()
    if name in NEGATIVE_COLUMNS or name in SCORE_COLUMNS:
        return "triples" if name in NEGATIVE_COLUMNS else "scored"
    rows = list(islice(read_rows(path, columns, numeric_columns=columns[2:]), N_ROWS_TO_JUDGE))
    return "scored" if any(_is_score(row.values[2]) for row in rows) else "triples"


def _read_source(source: _Source, skip_empty: bool) -> Iterator[SentencePair]:
    """Yield the complete examples of a file; one without any is an error."""
    path, columns, kind = source
    if kind == "sentences":
        rows: Iterator[TableRow] = (TableRow(number, (line,)) for number, line in enumerate(read_lines(path), 1))
    else:
        scores = columns[2:] if kind == "scored" else ()
        table = read_rows(path, columns, numeric_columns=scores, require_equal_fields=True)
        rows = _reject_header(path, table) if file_format(path) in ("tsv", "csv") else table
    names = SIDES[kind] if kind != "sentences" else ("sentence",)
    rows = _reject_invalid_scores(path, rows) if kind == "scored" else rows
    for values in filter_empty_rows(rows, names, [path] * len(names), kind, skip_empty):
        yield SentencePair(**dict(zip(SIDES[kind], values, strict=True)))


def _reject_header(path: str, table: Iterator[TableRow]) -> Iterator[TableRow]:
    """Yield the rows; a header among them, because columns are given by number, is an error."""
    for line, values in table:
        if line == 1 and all(value.strip().lower() in KNOWN_COLUMNS for value in values):
            fix = f"ask for the columns by name, as in {path}:{','.join(values)}"
            raise DataError(path, f"a header, {quote_names(values)}, where a pair was expected; {fix}", line)
        yield TableRow(line, values)


def _reject_invalid_scores(path: str, table: Iterator[TableRow]) -> Iterator[TableRow]:
    """Yield the rows; a complete one whose score is not a finite number is an error."""
    for line, values in table:
        if all(map(str.strip, values)) and not _is_score(values[2]):
            fix = "correct it, or name the columns if this line is a header, as in dev.tsv:first,second,similarity"
            raise DataError(path, f"the score '{values[2][:40]}' is not a finite number; {fix}", line)
        yield TableRow(line, values)


def _is_score(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
