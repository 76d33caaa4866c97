"""The lines of a file, for verbs that read whole files: numbered from 1, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from regard.cli.text_inputs import NO_TEXTS_MESSAGE
from regard.errors import DataError

NumberedLines = list[tuple[int, str]]

LinesFileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="One text per line, also .gz .xz .zst; - is standard input.")
]


def number_lines(file: str, batches: Iterable[Sequence[str]]) -> Iterator[NumberedLines]:
    """Yield batches of (line number from 1, text); refuse a file without lines."""
    n_lines = 0
    for batch in batches:
        yield list(enumerate(batch, n_lines + 1))
        n_lines += len(batch)
    if not n_lines:
        raise DataError(file, NO_TEXTS_MESSAGE)
