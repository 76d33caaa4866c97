"""Plain text as documents: lines, and blank lines between the documents.

Encoders use `read_documents`: stripped lines. Language models use `read_document_chunks`: the unchanged text, long
documents in chunks, so that a file of any size may be one document. Neither truncates to a number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError
from regard.text.files import TABLE_SUFFIXES, check_readable, file_format, read_lines

MAX_DOCUMENT_LINES = 1000
"""Maximum number of lines of a document: a longer one counts as several."""

MAX_DOCUMENT_CHARACTERS = 1 << 26
"""Characters of a document at most: it ends with the line that reaches them."""

MAX_CHUNK_CHARACTERS = 1 << 15
"""Characters of a chunk at most."""

MIN_CHUNKS = 20
"""With fewer chunks, none could be held out for validation: then smaller ones are made."""

CONTEXT_CHARACTERS = 64
"""Characters of the preceding text that come with a chunk."""


def document_paths(data: Sequence[str]) -> list[Path]:
    """Return the files that `read_documents` would read."""
    return [Path(item) for item in data]


def read_documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    """Yield the documents of all files in order, each with its lines separated by line feeds."""
    _check_plain_text_files(data)
    return _read_documents(data)


class DocumentChunk(NamedTuple):
    """A part of a document, or all of it: its text, the end of the text before it, and "more" if another chunk follows.

    Concatenated, the chunks of a document are the document, line ends included.
    """

    text: str
    preceding_text: str = ""
    continues: str = ""


def read_document_chunks(
    data: Sequence[str], *, one_document_per_file: bool = False, ensure_min_chunks: bool = False
) -> Iterator[DocumentChunk]:
    """Yield the unchanged text of all files in order.

    Blank lines separate documents and belong to none, unless there is `one_document_per_file`. With
    `ensure_min_chunks`, too little text for `MIN_CHUNKS` chunks is split into at least twice as many, however short.
    """
    _check_plain_text_files(data)
    chunks = _read_chunks(data, one_document_per_file, MAX_CHUNK_CHARACTERS)
    first = list(islice(chunks, MIN_CHUNKS)) if ensure_min_chunks else []
    if not ensure_min_chunks or len(first) == MIN_CHUNKS:
        return chain(first, chunks)
    return _read_chunks(data, one_document_per_file, max(1, sum(len(each.text) for each in first) // (2 * MIN_CHUNKS)))


def _read_chunks(data: Sequence[str], one_document_per_file: bool, max_characters: int) -> Iterator[DocumentChunk]:
    for path in data:
        has_text = False
        groups = (
            [(False, read_lines(path))]
            if one_document_per_file
            else groupby(read_lines(path), lambda line: not line.strip())
        )
        for is_blank, document in groups:
            for chunk in _split_document(document, max_characters) if not is_blank else ():
                has_text |= bool(chunk.text.strip())
                yield chunk
        if not has_text:
            raise DataError(path, "no text; the file is empty or blank: give one with text")


def _split_document(document: Iterable[str], max_characters: int) -> Iterator[DocumentChunk]:
    """Yield chunks of at most `max_characters`, of whole lines where lines are not longer than that."""
    parts: list[str] = []
    size, preceding_text = 0, ""
    for part in _split_long_lines(document, max_characters):
        if size and size + len(part) > max_characters:
            text = "".join(parts)
            yield DocumentChunk(text, preceding_text, "more")
            parts, size, preceding_text = [], 0, text[-CONTEXT_CHARACTERS:]
        parts.append(part)
        size += len(part)
    yield DocumentChunk("".join(parts), preceding_text)


def _split_long_lines(document: Iterable[str], max_characters: int) -> Iterator[str]:
    """Yield the lines, each but the first after a line feed; longer ones are split before a space, or anywhere."""
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
        has_text = False
        lines: list[str] = []
        n_characters = 0
        for line in read_lines(path):
            if stripped := line.strip():
                lines.append(stripped)
                n_characters += len(stripped)
            is_full = len(lines) == MAX_DOCUMENT_LINES or n_characters >= MAX_DOCUMENT_CHARACTERS
            if lines and (not stripped or is_full):
                yield ("\n".join(lines),)
                lines, n_characters, has_text = [], 0, True
        if lines:
            yield ("\n".join(lines),)
        elif not has_text:
            raise DataError(path, "no text; the file is empty or blank: give one with text")
