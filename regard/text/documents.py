"""Plain text as documents: lines, and blank lines between the documents.

Encoders read `read_documents`: lines without the spaces around them. Language models read `read_stretches`: the text as
it is, long documents in stretches, so that a file of any size may be one document. Neither cuts to a number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import TABLES, kind, lines, require

MOST_LINES = 1000
"""Lines of a document that are read at once: a longer one counts as several."""

MOST_CHARACTERS = 1 << 15
"""Characters of a stretch."""

FEW = 20
"""With fewer stretches than this, none could be held out for validation: then they are cut smaller."""

BEFORE = 64
"""Characters that a stretch knows of the one before it."""


def paths_of(data: Sequence[str]) -> list[Path]:
    """The files that `read_documents` would read."""
    return [Path(item) for item in data]


def read_documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    """The documents of all files in order, each with its lines parted by line ends."""
    _require(data)
    return _documents(data)


class Stretch(NamedTuple):
    """A part of a document, or all of it: its text, the end of what stands before it, and "more" if more follows.

    Put together, the stretches of a document are the document, line ends included.
    """

    text: str
    before: str = ""
    more: str = ""


def read_stretches(data: Sequence[str], *, whole: bool = False, few: bool = False) -> Iterator[Stretch]:
    """The text of all files in order, as it is.

    Blank lines part documents and belong to none; or each file is one document, `whole`, with all its lines. Where
    `few` stretches are too few, there are forty or more, however short they get.
    """
    _require(data)
    found = _stretches(data, whole, MOST_CHARACTERS)
    first = list(islice(found, FEW)) if few else []
    if not few or len(first) == FEW:
        return chain(first, found)
    return _stretches(data, whole, max(1, sum(len(each.text) for each in first) // (2 * FEW)))


def _stretches(data: Sequence[str], whole: bool, most: int) -> Iterator[Stretch]:
    for path in data:
        found = False
        parted = [(False, lines(path))] if whole else groupby(lines(path), lambda line: not line.strip())
        for blank, document in parted:
            for stretch in _cut(document, most) if not blank else ():
                found |= bool(stretch.text.strip())
                yield stretch
        if not found:
            raise DataError(path, "no text; the file is empty or blank: give one with text")


def _cut(document: Iterable[str], most: int) -> Iterator[Stretch]:
    """Stretches of so many characters at most: of whole lines, where these are no longer than that."""
    gathered: list[str] = []
    size, before = 0, ""
    for part in _parts(document, most):
        if size and size + len(part) > most:
            text = "".join(gathered)
            yield Stretch(text, before, "more")
            gathered, size, before = [], 0, text[-BEFORE:]
        gathered.append(part)
        size += len(part)
    yield Stretch("".join(gathered), before)


def _parts(document: Iterable[str], most: int) -> Iterator[str]:
    """The lines, each but the first behind a line end; longer ones are cut before a space, or anywhere."""
    for number, line in enumerate(document):
        text, start = f"\n{line}" if number else line, 0
        while len(text) - start > most:
            space = text.rfind(" ", start + 1, start + most + 1)
            end = space if space > 0 else start + most
            yield text[start:end]
            start = end
        yield text[start:]


def _require(data: Sequence[str]) -> None:
    if not data:
        raise ConfigError("no data; name files of plain text, with blank lines between documents")
    for path in data:
        require(path)
        if kind(path) != "text":
            raise DataError(
                path, f"a table; plain text is read here, from files that end in none of {' '.join(TABLES)}"
            )


def _documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    for path in data:
        found = False
        gathered: list[str] = []
        for line in lines(path):
            if line.strip():
                gathered.append(line.strip())
            if gathered and (not line.strip() or len(gathered) == MOST_LINES):
                yield ("\n".join(gathered),)
                gathered, found = [], True
        if gathered:
            yield ("\n".join(gathered),)
        elif not found:
            raise DataError(path, "no text; the file is empty or blank: give one with text")
