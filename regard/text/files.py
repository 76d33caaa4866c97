"""Files of lines: UTF-8 text, plain or compressed, streamed in blocks.

A line ends at "\\n" and nowhere else, so line numbers agree with wc, sed and the editor, and the two files of a pair
stay aligned whatever characters they contain. No line is longer than limits.py allows. tables.py and pairs.py read the
lines of tables here.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import gzip
import io
import lzma
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Literal, cast

from regard.errors import DataError, did_you_mean
from regard.progress import report_bytes_read
from regard.text.limits import BLOCK_FACTOR, DEFAULT_MAX_LINE_BYTES, max_line_bytes, too_large_error

STDIN = "-"
BLOCK_BYTES = 1 << 20
"""Bytes read at a time."""

FileFormat = Literal["tsv", "csv", "jsonl", "parquet", "text"]
TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")
COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst")
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def file_format(path: str | Path) -> FileFormat:
    """Return the format that the file's name implies, compressed or not; unknown names are plain text."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    if suffixes and suffixes[-1] in TABLE_SUFFIXES:
        return cast(FileFormat, suffixes[-1].removeprefix("."))
    return "text"


def is_compressed(path: str | Path) -> bool:
    """Return True if the file's name has the suffix of a compression format."""
    return Path(path).suffix.lower() in COMPRESSED_SUFFIXES


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for ``-``, without line ends."""
    n_lines = 0
    for block in _read_line_blocks(path):
        lines = _decode_utf8(block, path, n_lines).split("\n")
        n_lines += len(lines)
        yield from (line.removesuffix("\r") for line in lines) if b"\r" in block else lines


def read_text(path: str | Path) -> str:
    """Return the lines of a file as one text, which is no longer than a line may be."""
    lines: list[str] = []
    limit, n_characters = max_line_bytes(), 0
    for line in read_lines(path):
        lines.append(line)
        n_characters += len(line) + 1
        if n_characters > limit:
            raise too_large_error(path, "a text", "give a shorter one")
    return "\n".join(lines)


def read_text_blocks(path: str | Path) -> Iterator[str]:
    """Yield the text of a file in blocks of about a megabyte, which end anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in read_decompressed(path):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(path, f"byte 0x{byte:02x} is not UTF-8; convert it: iconv -f latin-1 -t utf-8") from None


def check_readable(path: str | Path) -> None:
    """Raise the error that opening the file would raise, if any, before anything is read."""
    if str(path) != STDIN:
        with _os_errors_as_data_errors(path):
            if stat.S_ISDIR(Path(path).stat().st_mode):
                raise IsADirectoryError


def open_bytes(path: str | Path) -> io.BufferedReader:
    """Open the raw file, or raise the error that names why it cannot be opened."""
    with _os_errors_as_data_errors(path):
        return Path(path).open("rb")


def open_seekable(path: str | Path) -> IO[bytes]:
    """Open the file for random access; a compressed one is decompressed into memory."""
    raw = open_bytes(path)
    if not is_compressed(path):
        return raw
    whole, limit = io.BytesIO(), BLOCK_FACTOR * max_line_bytes()
    with raw, _decompress(raw, path) as stream:
        while chunk := _read_block(stream, BLOCK_BYTES, path):
            if whole.write(chunk) and whole.tell() > limit:
                raise too_large_error(path, "a compressed file", "decompress it", factor=BLOCK_FACTOR)
    whole.seek(0)
    return whole


@contextlib.contextmanager
def _os_errors_as_data_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _missing_file_error(path) from None
    except IsADirectoryError:
        raise DataError(path, "a directory; name the files in it") from None
    except PermissionError:
        raise DataError(path, "no permission to read it; see: ls -l") from None
    except OSError as error:
        raise DataError(path, f"cannot be opened: {error.strerror}") from None
    except ValueError as error:  # a NUL in the path
        raise DataError(path, f"cannot be opened: {error}") from None


def _missing_file_error(path: str | Path) -> DataError:
    """Return the error for a missing file; names the most similar one of its directory."""
    folder, name = Path(path).parent, Path(path).name
    if Path(path).is_symlink():
        return DataError(path, f"a link to {Path(path).readlink()}, which does not exist; correct the link")
    try:
        close = difflib.get_close_matches(
            name, [entry.name for entry in folder.iterdir() if entry.exists()], n=1, cutoff=0.75
        )
    except OSError:
        return DataError(path, f"no such file; there is no directory {folder} either")
    return DataError(path, f"no such file; {did_you_mean(name, close)}" if close else "no such file")


def _read_line_blocks(path: str | Path) -> Iterator[bytes]:
    """Yield whole lines in blocks of about a megabyte, each without its last line end; refuse a line over the limit."""
    limit, n_lines = max_line_bytes(), 0
    rest: list[bytes] = []
    n_rest = 0
    for chunk in read_decompressed(path):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            block = b"".join((*rest, head))
            _check_line_lengths(block, path, n_lines, limit)
            n_lines += block.count(b"\n") + 1
            yield block
            rest, n_rest = [], 0
        rest.append(tail)
        n_rest += len(tail)
        if n_rest > limit:
            raise _long_line_error(path, n_lines + 1)
    if last := b"".join(rest):
        yield last


def _check_line_lengths(block: bytes, path: str | Path, n_lines_before: int, limit: int) -> None:
    """Refuse a block with a line over the limit; few blocks are that long."""
    if len(block) > limit:
        for number, line in enumerate(block.split(b"\n"), start=n_lines_before + 1):
            if len(line) > limit:
                raise _long_line_error(path, number)


def _long_line_error(path: str | Path, line: int) -> DataError:
    return too_large_error(path, "a line", "split it, as with fold -s", line=line)


def read_decompressed(path: str | Path) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, without a byte order mark."""
    with _open_raw(path) as raw, _decompress(raw, path) as stream:
        start = _read_block(stream, len(codecs.BOM_UTF8), path)
        yield b"" if start == codecs.BOM_UTF8 else start
        while chunk := _read_block(stream, BLOCK_BYTES, path):
            report_bytes_read(path, raw.tell)
            yield chunk


def _open_raw(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if str(path) == STDIN:
        # unbuffered: a line of a pipe arrives as soon as it is written, and no lock is held while waiting for it
        return contextlib.nullcontext(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))
    return open_bytes(path)


def _decompress(raw: IO[bytes], path: str | Path) -> AbstractContextManager[Any]:
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return contextlib.nullcontext(_XzStream(raw, path))
    if suffix == ".zst":
        import pyarrow  # slow to import, and used here only

        return cast(AbstractContextManager[Any], pyarrow.CompressedInputStream(raw, "zstd"))
    return contextlib.nullcontext(raw)


class _XzStream:
    """A stream of .xz, also of several concatenated ones; `lzma.LZMAFile` allocates any dictionary a file asks for."""

    def __init__(self, raw: IO[bytes], path: str | Path) -> None:
        self._raw, self._path = raw, path
        self._decoder = self._make_decoder()

    def _make_decoder(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=BLOCK_FACTOR * max(max_line_bytes(), DEFAULT_MAX_LINE_BYTES))

    def read(self, size: int) -> bytes:
        """Return some decompressed bytes, at most `size`; none at the end."""
        data = b""
        while not data:
            if self._decoder.eof:
                if not (block := self._decoder.unused_data or self._raw.read(BLOCK_BYTES)):
                    return b""
                self._decoder = self._make_decoder()
                try:
                    data = self._decode(block, size)
                except lzma.LZMAError:
                    return b""  # padding after the last stream
            else:
                block = self._raw.read(BLOCK_BYTES) if self._decoder.needs_input else b""
                if not block and self._decoder.needs_input:
                    raise EOFError("compressed file ended before the end-of-stream marker was reached")
                data = self._decode(block, size)
        return data

    def _decode(self, block: bytes, size: int) -> bytes:
        try:
            return self._decoder.decompress(block, size)
        except lzma.LZMAError as error:
            if "memory usage limit" in str(error).lower():
                fix = "compress it with xz -9 or less"
                raise too_large_error(self._path, "a dictionary", fix, factor=BLOCK_FACTOR) from None
            raise


def _read_block(stream: Any, size: int, path: str | Path) -> bytes:
    try:
        return cast(bytes, stream.read(size))
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if is_compressed(path):
            raise DataError(path, f"damaged or cut short: {error}; copy or download it again") from None
        raise DataError(path, f"cannot be read: {error}") from None


def _decode_utf8(block: bytes, path: str | Path, n_lines_before: int) -> str:
    """Return the block as text; errors name line and column, both counted from 1."""
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        column = len(block[start : error.start].decode("utf-8")) + 1
        line = n_lines_before + block.count(b"\n", 0, error.start) + 1
        encoding = "utf-16" if line == 1 and block.startswith(UTF16_BOMS) else "latin-1"
        fix = f"convert it: iconv -f {encoding} -t utf-8"
        problem = f"byte 0x{block[error.start]:02x} at column {column} is not UTF-8; {fix}"
        raise DataError(path, problem, line) from None
