"""The lines of a file as verbs on whole files take them: numbered, in batches, none of them empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from regard.cli.text_inputs import NO_TEXTS_MESSAGE, read_texts
from regard.errors import DataError
from regard.progress import warn

NumberedLines = list[tuple[int, str]]

LinesFileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="One text per line, also .gz .xz .zst; - is standard input.")
]
SkipEmptyLinesOption = Annotated[bool, typer.Option("--skip-empty", help="Leave out empty lines, and count them.")]


def read_numbered_lines(file: str, *, skip_empty: bool) -> tuple[Iterator[NumberedLines], int | None]:
    """Return batches of (line number from 1, text), and the number of lines where it is known."""
    batches, n_lines = read_texts([], file)
    return _number_lines(file, batches, skip_empty), n_lines


def _number_lines(file: str, batches: Iterable[Sequence[str]], skip_empty: bool) -> Iterator[NumberedLines]:
    n_lines = n_texts = 0
    for batch in batches:
        numbered = list(enumerate(batch, n_lines + 1))
        texts = [(number, text) for number, text in numbered if text.strip()]
        if len(texts) < len(numbered) and not skip_empty:
            first_empty = next(number for number, text in numbered if not text.strip())
            raise DataError(file, "an empty line; drop it, or pass --skip-empty", first_empty)
        n_lines, n_texts = n_lines + len(numbered), n_texts + len(texts)
        if texts:
            yield texts
    if not n_texts:
        raise DataError(file, NO_TEXTS_MESSAGE)
    if n_texts < n_lines:
        warn(f"{file}: left out {n_lines - n_texts:,} of {n_lines:,} lines: empty")
