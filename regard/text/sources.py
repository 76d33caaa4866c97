"""Source texts for a translator: the lines of files, a column of tables, or the sources of pairs.

Reads and checks; leaves nothing out: a blank line is a blank text. For a translator of several directions the entries
name languages (languages.py), and a text comes once for each direction that it is to be translated in. Called by
training/distillation.py, whose teacher translates them; pairs.py reads the pairs that translators are trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import STDIN, check_readable, file_format, is_compressed, read_lines
from regard.text.languages import LanguageEntry, parse_direction, parse_language_entry
from regard.text.multilingual import expand_row, list_directions, read_multilingual_rows
from regard.text.pairs import pair_paths, read_pairs
from regard.text.tables import read_rows, split_path_and_columns


class SourceExample(NamedTuple):
    """A source text, where pairs are read its reference, and where there are several its direction."""

    text: str
    reference: str = ""
    direction: str = ""


def source_paths(data: Sequence[str], *, pairs: bool) -> list[Path]:
    """Return the files that `read_sources` would read; refuse none at all, and standard input."""
    paths = pair_paths(data) if pairs else [Path(_split_item(item)[0]) for item in data]
    if not paths:
        raise ConfigError("no texts; name files of lines, or tables")
    if Path(STDIN) in paths:
        raise ConfigError("the texts are read several times, so not from standard input; use a file")
    for path in paths:
        check_readable(path)
    if not pairs:
        _refuse_sides_of_pairs(paths)
    return paths


def read_sources(
    data: Sequence[str],
    columns: Sequence[str] = (),
    *,
    pairs: bool = False,
    skip_empty: bool = False,
    directions: Sequence[str] = (),
) -> Iterator[SourceExample]:
    """Yield the texts of all files in order: every line of a file, the first named column of every row of a table.

    A table's column is named after its path (``europarl.tsv:1``), or else in `columns`; by default it is the first, and
    "source" in JSONL. With `pairs` the files are those of `read_pairs`, and `skip_empty` is as there.
    With `directions`, every text comes in each direction from its language, and that of pairs in each of the pair.
    """
    if directions and pairs:
        for row in read_multilingual_rows(data, columns, None, skip_empty=skip_empty):
            yield from (SourceExample(s, t, str(each)) for each, s, t in expand_row(row) if str(each) in directions)
        return
    if directions:
        yield from _read_in_directions(data, directions)
        return
    if pairs:
        yield from (SourceExample(*pair) for pair in read_pairs(data, columns, skip_empty=skip_empty))
        return
    for item in data:
        path, own_columns = _split_item(item)
        if file_format(path) == "text":
            yield from map(SourceExample, read_lines(path))
        else:
            column = (own_columns or tuple(columns) or _default_columns(path))[0]
            yield from (SourceExample(*row.values) for row in read_rows(path, [column]))


def list_source_directions(data: Sequence[str], directions: Sequence[str], *, pairs: bool) -> list[str]:
    """Return those of the directions that `read_sources` gives texts in; refuse an entry without any."""
    from_data = list_directions(data, None) if pairs else []
    languages = {language for entry in data for language in _require_languages(entry).languages}
    chosen = [
        each
        for each in directions
        if (parse_direction(each) in from_data if pairs else parse_direction(each).source in languages)
    ]
    if not chosen:
        raise DataError(data[0], f"no text for this teacher, which translates {', '.join(directions)}")
    return chosen


def _read_in_directions(data: Sequence[str], directions: Sequence[str]) -> Iterator[SourceExample]:
    for entry in map(_require_languages, data):
        targets = [[each for each in directions if parse_direction(each).source == lang] for lang in entry.languages]
        texts: Iterator[tuple[str, ...]] = (
            (row.values for row in read_rows(entry.path, entry.columns))
            if entry.columns
            else ((line,) for line in read_lines(entry.path))
        )
        for row in texts:
            for text, chosen in zip(row, targets, strict=True):
                yield from (SourceExample(text, "", each) for each in chosen)


def _require_languages(entry: str) -> LanguageEntry:
    parsed = parse_language_entry(entry)
    if parsed is None:
        path = split_path_and_columns(entry, (1, 2, 3), "one")[0]
        example = f"{path}:en" if file_format(path) == "text" else f"{path}:en=1"
        raise DataError(path, f"of which language? this teacher translates several; name it, as in {example}")
    return parsed


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
    entry = parse_language_entry(item)
    if entry is not None:
        return entry.path, ()
    return split_path_and_columns(item, (1, 2), "one, the source")


def _default_columns(path: str) -> tuple[str]:
    return ("source",) if file_format(path) == "jsonl" else ("1",)


def _refuse_sides_of_pairs(paths: Sequence[Path]) -> None:
    """Refuse train.en beside train.fr: one of them is in the language that the teacher writes."""
    stems: dict[Path, Path] = {}
    for path in paths:
        name = path.with_suffix("") if is_compressed(path) else path
        if file_format(path) == "text" and name.suffix and stems.setdefault(name.with_suffix(""), path) != path:
            first = stems[name.with_suffix("")]
            raise ConfigError(
                f"{first} and {path}: two sides of pairs? name the source alone, or pass --pairs; "
                "for two files in one language, rename one of them"
            )
