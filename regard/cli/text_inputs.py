"""Texts as verbs take them: arguments, the lines of a file, a column of a table, or standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import DataError, InputError
from regard.progress import warn

TextArguments = Annotated[list[str] | None, typer.Argument(metavar="[TEXT...]", help="Texts; - is standard input.")]
FileOption = Annotated[str, typer.Option(help="A file with one text per line, also .gz .xz .zst; - is standard input.")]

NO_TEXTS_MESSAGE = "no texts; give one per line"


def read_texts(texts: list[str], file: str) -> tuple[Iterable[Sequence[str]], int | None]:
    """Return the texts in batches, and their number where it is known."""
    from regard.data.buckets import buffered_read, buffered_read_stream
    from regard.text.files import read_lines

    if texts and file:
        raise InputError("both TEXT and --file given; give one of them")
    if texts and texts != ["-"]:
        if not all(text.strip() for text in texts):
            raise InputError("a text is empty; give at least one word")
        return [texts], len(texts)
    if file in ("", "-") or Path(file).is_fifo() or Path(file).is_char_device():
        return buffered_read_stream(read_lines(file or "-")), None  # a pipe may end without a text
    if (n_texts := sum(1 for _ in read_lines(file))) == 0:
        raise DataError(file, NO_TEXTS_MESSAGE)
    return buffered_read(read_lines(file)), n_texts


def count_empty(batches: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the batches; at the end, a warning counts the empty texts, whose results are empty too."""
    n_texts = n_empty = 0
    for batch in batches:
        n_texts += len(batch)
        n_empty += sum(not text.strip() for text in batch)
        yield batch
    warn_empty(n_empty, n_texts)


def warn_empty(n_empty: int, n_texts: int) -> None:
    """Warn if some texts are empty, since these have no result."""
    if n_empty:
        warn(f"{n_empty:,} of {n_texts:,} texts are empty; so are their results")
