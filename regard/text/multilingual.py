"""Parallel text in several languages: rows of tables and files of lines, each row with the languages of its texts.

A row is a tuple of texts and, last, the tag of its languages, "en,de,fr" or "en>fr" (languages.py). It occurs once,
whatever the number of its directions. Called by the translation task, by evaluation and by distillation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.errors import DataError
from regard.text.files import check_readable
from regard.text.languages import ONE_WAY, Direction, LanguageEntry, directions_of_tag, parse_language_entry
from regard.text.pairs import group_pair_files, pair_paths, read_pairs
from regard.text.tables import filter_empty_rows, read_rows

MultilingualRow = tuple[str, ...]
"""The texts of a row, and the tag of their languages."""


def read_multilingual_rows(
    data: Sequence[str], columns: Sequence[str], default: Direction | None, *, skip_empty: bool
) -> Iterator[MultilingualRow]:
    """Yield the rows of all entries in order; pairs whose entry names no languages have the `default` direction."""
    for group in group_pair_files(data):
        tag = _group_tag(group, default)
        entry = parse_language_entry(group[0])
        if entry is not None and entry.columns:
            rows = _read_table(entry, skip_empty)
        else:
            files = group if entry is None else list(map(str, pair_paths(group)))
            rows = read_pairs(files, columns, skip_empty=skip_empty)
        yield from ((*texts, tag) for texts in rows)


def list_directions(data: Sequence[str], default: Direction | None) -> list[Direction]:
    """Return the directions of all entries, each once, in order."""
    tags = [_group_tag(group, default) for group in group_pair_files(data)]
    return list(dict.fromkeys(direction for tag in tags for direction in directions_of_tag(tag)))


def expand_row(row: MultilingualRow) -> Iterator[tuple[Direction, str, str]]:
    """Yield each direction of a row with its source and its target."""
    texts = dict(zip(split_tag(row[-1]), row[:-1], strict=True))
    for direction in directions_of_tag(row[-1]):
        yield direction, texts[direction.source], texts[direction.target]


def split_tag(tag: str) -> list[str]:
    """Return the languages of a row, in the order of its texts."""
    return tag.replace(ONE_WAY, ",").split(",")


def _group_tag(group: Sequence[str], default: Direction | None) -> str:
    """Return the tag of a table, or of two files of lines."""
    entries = [parse_language_entry(each) for each in group]
    named = [each for each in entries if each is not None]
    if not named and default is not None:
        return ONE_WAY.join(default)
    if len(named) < len(entries):
        path, *others = map(str, pair_paths(group))
        fix = f"name them, as in {f'{path}:en {others[0]}:fr' if others else f'{path}:en=1,fr=2'}, or give both"
        raise DataError(group[0], f"of which languages? {fix} --source-lang and --target-lang")
    tag = named[0].tag if len(named) == 1 else ",".join(each.languages[0] for each in named)
    if len(set(split_tag(tag))) < max(2, len(named)):
        raise DataError(named[0].path, f"one language alone ({tag}); a translator learns from two or more")
    return tag


def _read_table(entry: LanguageEntry, skip_empty: bool) -> Iterator[tuple[str, ...]]:
    check_readable(entry.path)
    names = [f"text in {language}" for language in entry.languages]
    rows = read_rows(entry.path, entry.columns)
    return filter_empty_rows(rows, names, [entry.path] * len(names), "rows", skip_empty)
