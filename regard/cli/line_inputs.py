"""The lines of a file as verbs on whole files take them: numbered, a buffer at a time, none of them empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from regard.cli.text_inputs import NO_TEXTS_MESSAGE, read_texts
from regard.errors import DataError
from regard.progress import warn

NumberedLines = list[tuple[int, str]]

LinesFileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="One text a line, also .gz .xz .zst; - is standard input.")
]
SkipEmptyLinesOption = Annotated[bool, typer.Option("--skip-empty", help="Leave out empty lines, and count them.")]


def read_numbered_lines(file: str, *, skip_empty: bool) -> tuple[Iterator[NumberedLines], int | None]:
    """The texts of a file with the numbers of their lines, from 1, and how many lines there are where that is known."""
    buffers, total = read_texts([], file)
    return _number_lines(file, buffers, skip_empty), total


def _number_lines(file: str, buffers: Iterable[Sequence[str]], skip_empty: bool) -> Iterator[NumberedLines]:
    n_lines = n_texts = 0
    for buffer in buffers:
        found = [(number, text) for number, text in enumerate(buffer, n_lines + 1) if text.strip()]
        if len(found) < len(buffer) and not skip_empty:
            there = {number for number, _ in found}
            first = next(number for number in range(n_lines + 1, n_lines + len(buffer) + 1) if number not in there)
            raise DataError(file, "an empty line; drop it, or pass --skip-empty", first)
        n_lines, n_texts = n_lines + len(buffer), n_texts + len(found)
        if found:
            yield found
    if not n_texts:
        raise DataError(file, NO_TEXTS_MESSAGE)
    if n_texts < n_lines:
        warn(f"{file}: left out {n_lines - n_texts:,} of {n_lines:,} lines: empty")
