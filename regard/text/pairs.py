"""Parallel text: pairs of a source and its target, from two files of lines or from tables.

Reads, checks and counts; does not split into training and validation, truncate or clean. Nothing is left out unless
the caller asks for it, and then a warning counts it. Called by the translation task for training and for evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import TABLE_SUFFIXES, check_readable, file_format, read_lines
from regard.text.languages import parse_language_entry
from regard.text.table_columns import TableRow
from regard.text.tables import filter_empty_rows, read_rows, split_path_and_columns


class Pair(NamedTuple):
    source: str
    target: str


class _ParallelText(NamedTuple):
    """One table, or two files of lines, as rows of two values."""

    source_path: str
    target_path: str
    rows: Iterator[TableRow]


def read_pairs(data: Sequence[str], columns: Sequence[str] = (), *, skip_empty: bool = False) -> Iterator[Pair]:
    """Yield the pairs of all files in order: a table alone, plain text files two by two.

    A table's two columns are named after its path (``europarl.tsv:en,fr``), or else in `columns`; by default they are
    the first two, and "source" and "target" in JSONL.
    """
    if len(columns) not in (0, 2):
        raise ConfigError(f"columns: expected two, source and target, found {len(columns)}: {', '.join(columns)}")
    return _read_complete_pairs(_open_parallel_texts(data, columns), skip_empty)


def pair_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_pairs` would read."""
    return [Path(_split_item(item)[0]) for item in data]


def group_pair_files(data: Sequence[str]) -> list[list[str]]:
    """Group the entries that `read_pairs` reads together: a table alone, files of lines two by two."""
    groups: list[list[str]] = []
    unpaired: list[str] | None = None
    for entry in data:
        if unpaired is not None and file_format(_split_item(entry)[0]) == "text":
            unpaired.append(entry)
            unpaired = None
        else:
            groups.append([entry])
            unpaired = groups[-1] if file_format(_split_item(entry)[0]) == "text" else unpaired
    return groups


def _open_parallel_texts(data: Sequence[str], columns: Sequence[str]) -> list[_ParallelText]:
    parts: list[_ParallelText] = []
    unpaired: str | None = None
    for item in data:
        path, own_columns = _split_item(item)
        check_readable(path)
        if file_format(path) != "text":
            chosen = own_columns or tuple(columns) or _default_columns(path)
            parts.append(_ParallelText(path, path, read_rows(path, chosen)))
        elif unpaired is None:
            unpaired = path
        else:
            parts.append(_ParallelText(unpaired, path, _read_parallel_lines(unpaired, path)))
            unpaired = None
    if unpaired is not None:
        raise DataError(
            unpaired,
            "a second file must go with it, as in train.en train.fr or --valid dev.en --valid dev.fr; tables are "
            + ", ".join(TABLE_SUFFIXES),
        )
    if not parts:
        raise ConfigError("no data; name two files of lines, as in train.en train.fr, or a table")
    return parts


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    entry = parse_language_entry(item)
    return split_path_and_columns(item, (2,), "two, source and target") if entry is None else (entry.path, ())


def _default_columns(path: str) -> tuple[str, str]:
    return ("source", "target") if file_format(path) == "jsonl" else ("1", "2")


def _read_parallel_lines(source_path: str, target_path: str) -> Iterator[TableRow]:
    """Yield the lines of two files, which must have the same number of lines."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    for number, (source, target) in enumerate(zip_longest(sources, targets), start=1):
        if source is None or target is None:
            n_paired, n_left = number - 1, 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            n_sources, n_targets = (n_paired, n_paired + n_left) if source is None else (n_paired + n_left, n_paired)
            problem = f"{n_sources:,} lines, but {target_path} has {n_targets:,}"
            raise DataError(source_path, f"{problem}; line by line, one must translate the other")
        yield TableRow(number, (source, target))


def _read_complete_pairs(parallel_texts: list[_ParallelText], skip_empty: bool) -> Iterator[Pair]:
    """Yield the pairs with two sides; a source without any is an error."""
    for part in parallel_texts:
        paths = (part.source_path, part.target_path)
        yield from map(Pair._make, filter_empty_rows(part.rows, Pair._fields, paths, "pairs", skip_empty))
