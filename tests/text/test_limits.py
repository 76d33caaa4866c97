"""Limits on lines and values: applied while a file is decompressed, named in the error, raised by the environment."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from regard.errors import ConfigError, DataError
from regard.text import files
from regard.text.documents import read_document_chunks
from regard.text.files import open_seekable, read_lines, read_text
from regard.text.limits import DEFAULT_MAX_LINE_BYTES, LIMIT_VARIABLE, max_line_bytes
from regard.text.squad import read_questions
from regard.text.tables import read_rows
from regard.text.tagged import read_tagged_sentences

LIMIT = 1000
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(pyarrow.compress(data, "zstd", asbytes=True)),
}


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, str(LIMIT))


def test_default_and_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max_line_bytes() == LIMIT
    monkeypatch.delenv(LIMIT_VARIABLE)
    assert max_line_bytes() == DEFAULT_MAX_LINE_BYTES == 16 * 1024 * 1024


@pytest.mark.parametrize("setting", ["0", "-5", "16M", "1e6", "²", "9" * 400])
def test_other_settings_are_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, setting)
    with pytest.raises(ConfigError, match=rf"^{LIMIT_VARIABLE}={setting[:40]}: expected a number of bytes, as in "):
        max_line_bytes()


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize("suffix", PACKERS)
def test_lines_up_to_the_limit_are_read_and_no_others(
    suffix: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(PACKERS[suffix](b"one\n" + b"a" * LIMIT + b"\nthree\n"))
    assert [len(line) for line in read_lines(path)] == [3, LIMIT, 5]
    for rest in (b"\nthree\n", b"a" * 5000, b""):
        path.write_bytes(PACKERS[suffix](b"one\n" + b"a" * (LIMIT + 1) + rest))
        with pytest.raises(DataError) as caught:
            list(read_lines(path))
        fix = f"split it, as with fold -s, or set {LIMIT_VARIABLE} to more than {LIMIT}"
        assert str(caught.value) == f"{path}:2: a line of more than {LIMIT:,} bytes; {fix}"
    monkeypatch.setenv(LIMIT_VARIABLE, str(LIMIT + 1))
    assert len(list(read_lines(path))) == 2


LONG = "a " * LIMIT
READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "x.txt": (LONG, lambda path: list(read_document_chunks([path]))),
    "x.tsv": (f"{LONG}\tb\n", lambda path: list(read_rows(path, ["1", "2"]))),
    "x.csv": (f'"{LONG}",b\n', lambda path: list(read_rows(path, ["1", "2"]))),
    "lines.csv": ('"' + "a\n" * LIMIT, lambda path: list(read_rows(path, ["1"]))),
    "fields.csv": ('"a\n",' * LIMIT, lambda path: list(read_rows(path, ["1"]))),
    "x.jsonl": (json.dumps({"source": LONG, "target": "b"}), lambda path: list(read_rows(path, ["source", "target"]))),
    "x.json": (json.dumps([{"question": "q", "context": LONG * 3}]), lambda path: list(read_questions([path]))),
    "spaces.json": (f'[{{"question": "q"{" " * 9 * LIMIT}}}]', lambda path: list(read_questions([path]))),
    "x.conll": ("word X\n" * LIMIT, lambda path: list(read_tagged_sentences([path]))),
    "context.txt": ("word\n" * LIMIT, read_text),
}


@pytest.mark.parametrize("suffix", ["", ".xz"])
@pytest.mark.parametrize("name", READERS)
def test_every_reader_names_the_limit(name: str, suffix: str, tmp_path: Path) -> None:
    text, read = READERS[name]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(PACKERS[suffix](text.encode()))
    with pytest.raises(
        DataError, match=rf" of more than [\d,]+ bytes; .*, or set {LIMIT_VARIABLE} to more than {LIMIT}$"
    ):
        read(str(path))


def test_files_that_must_be_decompressed_whole_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet.xz"
    path.write_bytes(lzma.compress(bytes(16 * LIMIT)))
    assert len(open_seekable(path).read()) == 16 * LIMIT
    path.write_bytes(lzma.compress(bytes(16 * LIMIT + 1)))
    with pytest.raises(DataError, match="a compressed file of more than 16,000 bytes; decompress it, or set"):
        open_seekable(path)


def test_memory_of_the_xz_decoder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 26}]  # that of xz -9
    path.write_bytes(lzma.compress(b"a\n", filters=filters))
    assert list(read_lines(path)) == ["a"]
    monkeypatch.setattr(files, "DEFAULT_MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(
        DataError, match=rf"a dictionary of .*; compress it with xz -9 or less, or set {LIMIT_VARIABLE}"
    ):
        list(read_lines(path))


def test_line_of_gigabytes_in_a_small_file_does_not_fill_memory(tmp_path: Path) -> None:
    """The address space of the process holds the interpreter and the limit, not the line."""
    path = tmp_path / "x.xz"
    path.write_bytes(32 * lzma.compress(bytes(8 << 20), preset=0))  # streams after each other: one line of 256 MiB
    code = f"""
import resource
from regard.text.files import read_lines
from regard.errors import DataError
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
try:
    list(read_lines({str(path)!r}))
except DataError as error:
    print(error)
"""
    environment = {name: value for name, value in os.environ.items() if name != LIMIT_VARIABLE}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "a line of more than 16,777,216 bytes" in ran.stdout, ran.stderr
