"""Texts as verbs take them: arguments, the lines of a file, or what comes through a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import DataError, InputError

TextArguments = Annotated[list[str] | None, typer.Argument(metavar="[TEXT...]", help="Texts; - is standard input.")]
FileOption = Annotated[str, typer.Option(help="A file with one text a line, also .gz .xz .zst; - is stdin.")]

NO_TEXTS_MESSAGE = "no texts; give one a line"


def read_texts(texts: list[str], file: str) -> tuple[Iterable[Sequence[str]], int | None]:
    """What to work on, in buffers, and how many texts there are where that is known."""
    from regard.data.buckets import buffered_read, buffered_read_stream
    from regard.text.files import read_lines

    if texts and file:
        raise InputError("both TEXT and --file given; give one of them")
    if texts and texts != ["-"]:
        if not all(text.strip() for text in texts):
            raise InputError("a text is empty; give at least one word")
        return [texts], len(texts)
    if file in ("", "-") or Path(file).is_fifo() or Path(file).is_char_device():
        return buffered_read_stream(read_lines(file or "-")), None  # a pipe may well end without a text
    if (n_texts := sum(1 for _ in read_lines(file))) == 0:
        raise DataError(file, NO_TEXTS_MESSAGE)
    return buffered_read(read_lines(file)), n_texts
