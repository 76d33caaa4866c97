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
from regard.text.files import check_readable, is_compressed, read_decompressed, read_lines
from regard.text.limits import max_line_bytes, too_large_error
from regard.text.table_columns import MAX_SHOWN_CHARACTERS

BINARY_SUFFIX = ".bin"
"""The suffix of binary files, which may be followed by that of a compression format."""
MAX_HEADER_DIGITS = 12
"""Digits of a number in a header."""
MAX_HEADER_BYTES = 100


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
        raise DataError(
            path, f"the vector of '{word[:MAX_SHOWN_CHARACTERS]}' has a number that is not finite; leave the word out"
        )
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
    vectors = bytearray()
    for number, line in track(chain([first_row] if first_row[0] else [], lines), "reading vectors"):
        word, vector = _parse_line(path, number, line, width, expected)
        _check_new(path, word, seen, number, line=number)
        vectors += vector.data
    if header and header[0] != len(seen):
        raise DataError(path, f"the header says {header[0]:,} words, but {len(seen):,} follow; is it whole?", 1)
    return WordVectorTable(list(seen), np.frombuffer(vectors, np.float32).reshape(-1, width))


def _parse_header(line: str) -> tuple[int, int] | None:
    """Return the number of words and their width, if the line is a header."""
    fields = line.split()
    is_header = len(fields) == 2 and all(
        field.isascii() and field.isdigit() and len(field) <= MAX_HEADER_DIGITS for field in fields
    )
    return (int(fields[0]), int(fields[1])) if is_header and int(fields[1]) else None


def _parse_line(
    path: str | Path, number: int, line: str, width: int, expected: str
) -> tuple[str, Float[np.ndarray, " D"]]:
    """Return the word and the vector of a line; a word of GloVe's may contain spaces."""
    word, *fields = line.rstrip().rsplit(" ", width)
    n_more = len(fields) - width + sum(map(_is_number, word.split(" ")[1:]))
    if n_more:
        name = word.split(" ")[0][:MAX_SHOWN_CHARACTERS]
        raise DataError(path, f"{width + n_more} numbers for '{name}', but {expected} {width}", number)
    try:
        return word, np.array(fields, dtype=np.float32)
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))[:MAX_SHOWN_CHARACTERS]
        raise DataError(path, f"'{wrong}' is not a number; expected a word and {width} numbers", number) from None


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
        name = word[:MAX_SHOWN_CHARACTERS]
        raise DataError(path, f"'{name}' is a duplicate of {unit} {seen[word]:,}; keep one of them", line)
    seen[word] = number


class _ByteStream:
    """The bytes of a file, read on demand."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._blocks = path, read_decompressed(path)
        self._buffer, self._start = b"", 0

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        while len(self._buffer) - self._start < n_bytes and self._read_more():
            pass
        self._start += n_bytes
        return self._buffer[self._start - n_bytes : self._start]

    def take_until(self, separator: bytes, max_bytes: int) -> bytes:
        """Return the bytes up to and including a separator; without it if there is none within the limit."""
        while (end := self._buffer.find(separator, self._start)) < 0:
            if len(self._buffer) - self._start > max_bytes or not self._read_more():
                return self.take(max_bytes)
        return self.take(end + 1 - self._start)

    def _read_more(self) -> bool:
        block = next(self._blocks, None)
        self._buffer, self._start = self._buffer[self._start :] + (block or b""), 0
        return block is not None


def _read_binary(path: str | Path) -> WordVectorTable:
    stream = _ByteStream(path)
    line = stream.take_until(b"\n", MAX_HEADER_BYTES)
    header = _parse_header(line.decode("latin-1"))
    if header is None or not line.endswith(b"\n"):
        raise DataError(path, "not a word2vec binary file: the first line is not 'words width'; is it a text file?")
    n_words, width = header
    if 4 * width > max_line_bytes():
        raise too_large_error(path, f"a vector of {width:,} numbers,", "correct the header")
    if not is_compressed(path):
        _check_size(path, *header, Path(path).stat().st_size - len(line))
    seen: dict[str, int] = {}
    vectors = bytearray()
    for number in track(range(1, n_words + 1), "reading vectors", n_words):
        word, vector = stream.take_until(b" ", max_line_bytes()), stream.take(4 * width)
        if not word.endswith(b" ") or len(vector) < 4 * width:
            raise DataError(path, f"cut short in vector {number:,} of {n_words:,}; copy or download it again")
        _check_new(path, _decode_word(path, word[:-1].lstrip(b"\n"), number), seen, number)
        vectors += vector
    if stream.take(MAX_HEADER_BYTES).strip(b"\n"):
        raise DataError(path, f"the header says {n_words:,} vectors, but more bytes follow; is the header right?")
    return WordVectorTable(list(seen), np.frombuffer(vectors, "<f4").reshape(-1, width))


def _check_size(path: str | Path, n_words: int, width: int, n_bytes: int) -> None:
    """Refuse a file with fewer bytes than its header needs."""
    if n_words * (4 * width + 2) > n_bytes:
        least = f"the header says {n_words:,} vectors of {width:,} numbers"
        raise DataError(path, f"{least}, but {n_bytes:,} bytes follow, too few; is it cut short?")


def _decode_word(path: str | Path, word: bytes, number: int) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(
            path, f"the word of vector {number:,} is not UTF-8; was the width in the header changed?"
        ) from None
