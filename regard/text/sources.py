"""Source texts for a translator: the lines of files, a column of tables, or the sources of pairs.

Reads and checks; leaves nothing out: a blank line is a blank text. Called by training/distillation.py, whose teacher
translates them; pairs.py reads the pairs that translators are trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.errors import ConfigError
from regard.text.files import STDIN, check_readable, file_format, is_compressed, read_lines
from regard.text.pairs import pair_paths, read_pairs
from regard.text.tables import read_rows, split_path_and_columns

SourceExample = tuple[str, ...]
"""A source text, and where pairs are read its reference."""


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
    data: Sequence[str], columns: Sequence[str] = (), *, pairs: bool = False, skip_empty: bool = False
) -> Iterator[SourceExample]:
    """Yield the texts of all files in order: every line of a file, the first named column of every row of a table.

    A table's column is named after its path (``europarl.tsv:1``), or else in `columns`; by default it is the first, and
    "source" in JSONL. With `pairs` the files are those of `read_pairs`, and `skip_empty` is as there.
    """
    if pairs:
        yield from read_pairs(data, columns, skip_empty=skip_empty)
        return
    for item in data:
        path, own_columns = _split_item(item)
        if file_format(path) == "text":
            yield from ((line,) for line in read_lines(path))
        else:
            column = (own_columns or tuple(columns) or _default_columns(path))[0]
            yield from (row.values for row in read_rows(path, [column]))


def _split_item(item: str) -> tuple[str, tuple[str, ...]]:
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
