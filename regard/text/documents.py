"""Plain text as documents: lines, and blank lines between the documents.

Reads and checks; does not cut documents to a length. Called by the tasks that learn from plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.errors import ConfigError, DataError
from regard.text.files import TABLES, kind, lines, require

MOST_LINES = 1000
"""Lines of a document that are read at once: a longer one counts as several."""


def paths_of(data: Sequence[str]) -> list[Path]:
    """The files that `read_documents` would read."""
    return [Path(item) for item in data]


def read_documents(data: Sequence[str]) -> Iterator[tuple[str]]:
    """The documents of all files in order, each with its lines parted by line ends."""
    if not data:
        raise ConfigError("no data; name files of plain text, with blank lines between documents")
    for path in data:
        require(path)
        if kind(path) != "text":
            raise DataError(
                path, f"a table; plain text is read here, from files that end in none of {' '.join(TABLES)}"
            )
    return _documents(data)


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
            raise DataError(path, "no text; every line is blank")
