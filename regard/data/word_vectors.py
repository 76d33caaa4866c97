"""Files of word vectors: word2vec's text and binary formats, and GloVe's text, read strictly and written.

    word2vec text      a header line, "words width", then a line for each word: the word and its numbers
    GloVe text         the same without the header
    word2vec binary    the header line, then for each word its UTF-8 bytes, a space and its numbers as float32 (.bin)

A file that contradicts itself is refused with the line, or the number of the vector. Text files may be compressed.
`regard train --from`, `regard match` and `regard export` use this file; data/vector_files.py writes vectors of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float

from regard.disk import write_atomically
from regard.errors import DataError, InputError
from regard.progress import track
from regard.text.files import check_readable, open_seekable, read_lines

BINARY_SUFFIX = ".bin"
"""The suffix of binary files, behind which that of a compression may stand."""


@dataclass(frozen=True)
class WordVectorTable:
    """Words, each once, and their vectors."""

    words: Sequence[str]
    vectors: Float[np.ndarray, "words D"]

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def is_lowercase(self) -> bool:
        """True if no word has an upper-case letter."""
        return all(word == word.lower() for word in self.words)


def read_word_vectors(path: str | Path) -> WordVectorTable:
    """Return the vectors of a file; its name says whether it is binary."""
    check_readable(path)
    table = _read_binary(path) if BINARY_SUFFIX in Path(path).suffixes[-2:] else _read_text(path)
    if not table.words:
        raise DataError(path, "no vectors; is it the right file?")
    if not np.isfinite(table.vectors).all():
        word = table.words[int(np.flatnonzero(~np.isfinite(table.vectors).all(axis=1))[0])]
        raise DataError(path, f"the vector of '{word}' has a number that is not finite; leave the word out")
    return table


def write_word_vectors(path: Path, table: WordVectorTable) -> None:
    """Write vectors in word2vec's format: binary if the name ends in .bin, else text, as exact as float32."""
    for word in table.words:
        if not word or any(letter.isspace() for letter in word):
            raise InputError(f"the word {word!r} has white space, which word2vec's formats cannot hold")
    write_atomically(path, lambda aside: aside.write_bytes(b"".join(_format_file(path, table))))


def _format_file(path: Path, table: WordVectorTable) -> Iterator[bytes]:
    yield f"{len(table.words)} {table.width}\n".encode()
    for word, vector in zip(table.words, table.vectors.astype("<f4"), strict=True):
        if path.suffix == BINARY_SUFFIX:
            yield word.encode() + b" " + vector.tobytes() + b"\n"
        else:
            yield f"{word} {' '.join(map(str, vector))}\n".encode()


def _read_text(path: str | Path) -> WordVectorTable:
    lines = enumerate(read_lines(path), start=1)
    first = next(lines, (0, ""))
    header = _parse_header(first[1])
    first_row = first if header is None else next(lines, (0, ""))
    width = header[1] if header else len(first_row[1].split()) - 1
    if width < 1:
        raise DataError(path, f"expected a word and its numbers, found '{first_row[1][:40]}'", max(1, first_row[0]))
    expected = "the header says" if header else "the first line has"
    seen: dict[str, int] = {}
    vectors = []
    for number, line in track(chain([first_row] if first_row[0] else [], lines), "reading vectors"):
        word, vector = _parse_line(path, number, line, width, expected)
        _check_new(path, word, seen, number, line=number)
        vectors.append(vector)
    if header and header[0] != len(vectors):
        raise DataError(path, f"the header says {header[0]:,} words, but {len(vectors):,} follow; is it whole?", 1)
    return WordVectorTable(list(seen), np.array(vectors, dtype=np.float32).reshape(-1, width))


def _parse_header(line: str) -> tuple[int, int] | None:
    """Return the number of words and their width, if the line is a header."""
    fields = line.split()
    is_header = len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields)
    return (int(fields[0]), int(fields[1])) if is_header else None


def _parse_line(
    path: str | Path, number: int, line: str, width: int, expected: str
) -> tuple[str, Float[np.ndarray, " D"]]:
    """Return the word and the vector of a line; a word of GloVe's may contain spaces."""
    word, *fields = line.rstrip().rsplit(" ", width)
    n_more = len(fields) - width + sum(map(_is_number, word.split(" ")[1:]))
    if n_more:
        raise DataError(path, f"{width + n_more} numbers for '{word.split(' ')[0]}', but {expected} {width}", number)
    try:
        return word, np.array(fields, dtype=np.float32)
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise DataError(path, f"'{wrong}' is no number; expected a word and {width} numbers", number) from None


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _check_new(path: str | Path, word: str, seen: dict[str, int], number: int, line: int | None = None) -> None:
    """Record the word; refuse one that was there before."""
    if word in seen:
        unit = "vector" if line is None else "line"
        raise DataError(path, f"'{word}' again, which {unit} {seen[word]:,} has already; keep one of them", line)
    seen[word] = number


def _read_binary(path: str | Path) -> WordVectorTable:
    with open_seekable(path) as file:
        line = file.readline(100)
        header = _parse_header(line.decode("latin-1"))
        if header is None or not line.endswith(b"\n"):
            raise DataError(path, "no word2vec binary file: the first line is not 'words width'; is it a text file?")
        data = file.read()
    (n_words, width), start = header, 0
    seen: dict[str, int] = {}
    if n_words * (4 * width + 2) > len(data):
        least = f"the header says {n_words:,} vectors of {width:,} numbers"
        raise DataError(path, f"{least}, but {len(data):,} bytes follow, too few; is it cut short?")
    vectors = np.empty((n_words, width), dtype=np.float32)
    for number in track(range(1, n_words + 1), "reading vectors", n_words):
        space = data.find(b" ", start)
        end = space + 1 + 4 * width
        if space < 0 or end > len(data):
            raise DataError(path, f"cut short in vector {number:,} of {n_words:,}; copy or download it again")
        _check_new(path, _decode_word(path, data[start:space].lstrip(b"\n"), number), seen, number)
        vectors[number - 1] = np.frombuffer(data, "<f4", width, space + 1)
        start = end
    if data[start:].strip(b"\n"):
        raise DataError(path, f"the header says {n_words:,} vectors, but {len(data) - start:,} more bytes follow")
    return WordVectorTable(list(seen), vectors)


def _decode_word(path: str | Path, word: bytes, number: int) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(
            path, f"the word of vector {number:,} is not UTF-8; was the width in the header changed?"
        ) from None
