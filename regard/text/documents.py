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
from regard.text.files import TABLE_SUFFIXES, check_readable, file_format, read_lines

MAX_DOCUMENT_LINES = 1000
"""Lines of a document that are read at once: a longer one counts as several."""

MAX_CHUNK_CHARACTERS = 1 << 15
"""Characters of a stretch."""

MIN_CHUNKS = 20
"""With fewer stretches than this, none could be held out for validation: then they are cut smaller."""

CONTEXT_CHARACTERS = 64
"""Characters that a stretch knows of the one before it."""


def document_paths(data: Sequence[str]) -> list[Path]:
    """The files that `read_documents` would read."""
    return [Path(item) for item in data]


def read_documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    """The documents of all files in order, each with its lines parted by line ends."""
    _check_plain_text_files(data)
    return _read_documents(data)


class DocumentChunk(NamedTuple):
    """A part of a document, or all of it: its text, the end of what stands before it, and "more" if more follows.

    Put together, the stretches of a document are the document, line ends included.
    """

    text: str
    preceding_text: str = ""
    continues: str = ""


def read_document_chunks(
    data: Sequence[str], *, one_document_per_file: bool = False, ensure_min_chunks: bool = False
) -> Iterator[DocumentChunk]:
    """The text of all files in order, as it is.

    Blank lines part documents and belong to none; or each file is one document, `whole`, with all its lines. Where
    `few` stretches are too few, there are forty or more, however short they get.
    """
    _check_plain_text_files(data)
    found = _read_chunks(data, one_document_per_file, MAX_CHUNK_CHARACTERS)
    first = list(islice(found, MIN_CHUNKS)) if ensure_min_chunks else []
    if not ensure_min_chunks or len(first) == MIN_CHUNKS:
        return chain(first, found)
    return _read_chunks(data, one_document_per_file, max(1, sum(len(each.text) for each in first) // (2 * MIN_CHUNKS)))


def _read_chunks(data: Sequence[str], one_document_per_file: bool, max_characters: int) -> Iterator[DocumentChunk]:
    for path in data:
        found = False
        parted = (
            [(False, read_lines(path))]
            if one_document_per_file
            else groupby(read_lines(path), lambda line: not line.strip())
        )
        for blank, document in parted:
            for stretch in _split_document(document, max_characters) if not blank else ():
                found |= bool(stretch.text.strip())
                yield stretch
        if not found:
            raise DataError(path, "no text; the file is empty or blank: give one with text")


def _split_document(document: Iterable[str], max_characters: int) -> Iterator[DocumentChunk]:
    """Stretches of so many characters at most: of whole lines, where these are no longer than that."""
    gathered: list[str] = []
    size, before = 0, ""
    for part in _split_long_lines(document, max_characters):
        if size and size + len(part) > max_characters:
            text = "".join(gathered)
            yield DocumentChunk(text, before, "more")
            gathered, size, before = [], 0, text[-CONTEXT_CHARACTERS:]
        gathered.append(part)
        size += len(part)
    yield DocumentChunk("".join(gathered), before)


def _split_long_lines(document: Iterable[str], max_characters: int) -> Iterator[str]:
    """The lines, each but the first behind a line end; longer ones are cut before a space, or anywhere."""
    for number, line in enumerate(document):
        text, start = f"\n{line}" if number else line, 0
        while len(text) - start > max_characters:
            space = text.rfind(" ", start + 1, start + max_characters + 1)
            end = space if space > 0 else start + max_characters
            yield text[start:end]
            start = end
        yield text[start:]


def _check_plain_text_files(data: Sequence[str]) -> None:
    if not data:
        raise ConfigError("no data; name files of plain text, with blank lines between documents")
    for path in data:
        check_readable(path)
        if file_format(path) != "text":
            raise DataError(
                path, f"a table; plain text is read here, from files that end in none of {' '.join(TABLE_SUFFIXES)}"
            )


def _read_documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    for path in data:
        found = False
        gathered: list[str] = []
        for line in read_lines(path):
            if line.strip():
                gathered.append(line.strip())
            if gathered and (not line.strip() or len(gathered) == MAX_DOCUMENT_LINES):
                yield ("\n".join(gathered),)
                gathered, found = [], True
        if gathered:
            yield ("\n".join(gathered),)
        elif not found:
            raise DataError(path, "no text; the file is empty or blank: give one with text")
