from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text import files
from regard.text.files import check_readable, file_format, read_lines

TEXT = "one\ntwo  \n\n drei \u2028 vier\x85fünf\x0b\x0csechs\x1csieben\nlast"
LINES = ["one", "two  ", "", " drei \u2028 vier\x85fünf\x0b\x0csechs\x1csieben", "last"]


def zstd(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, "zstd", asbytes=True))


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def fault(path: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, "a.txt", TEXT))) == LINES


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("\n", [""]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("\r\n", [""]),
        ("a\r\n\rb\r\r\nc\r", ["a", "\rb\r", "c"]),
    ],
)
def test_last_line_and_windows_line_ends(tmp_path: Path, data: str, expected: list[str]) -> None:
    assert list(read_lines(written(tmp_path, "a.txt", data))) == expected


@pytest.mark.parametrize(("rest", "expected"), [("", []), ("a\n\ufeffb", ["a", "\ufeffb"])])
def test_a_byte_order_mark_is_dropped_at_the_start_only(tmp_path: Path, rest: str, expected: list[str]) -> None:
    assert list(read_lines(written(tmp_path, "a.txt", "\ufeff" + rest))) == expected


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("\n\r aé😀\u2028\ufeff"), max_size=30), block=st.integers(1, 7))
def test_lines_do_not_depend_on_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, block: int
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    path = written(tmp_path, "a.txt", text)
    body = text.removeprefix("\ufeff")
    expected = body.removesuffix("\n").split("\n") if body else []
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in expected]


@pytest.mark.parametrize("suffix", [*PACKERS, ".GZ"])
def test_compressed_files_are_decompressed(tmp_path: Path, suffix: str) -> None:
    pack = PACKERS[suffix.lower()]
    path = written(tmp_path, f"a.txt{suffix}", pack("\ufeffone\n".encode()) + pack(b"two\n"))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", PACKERS)
def test_damaged_compressed_file_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = PACKERS[suffix](os.urandom(50_000).hex().encode())
    faults = {"cut": whole[: len(whole) // 2], "tail": whole[:-1], "not": b"plain text\n"}
    if suffix != ".zst":  # pyarrow writes zstd without a checksum; the zstd program adds one
        faults["hit"] = whole[:999] + b"\0\0\0\0" + whole[1003:]
    for name, data in faults.items():
        assert "damaged or cut short" in fault(written(tmp_path, name + suffix, data))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(read_lines("-")) == LINES
    assert not sys.stdin.closed
    assert file_format("-") == "text"
    check_readable("-")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, "train.en.gz", b"")
    assert fault(tmp_path / "train.en") == ": no such file; did you mean 'train.en.gz'?"
    assert fault(tmp_path / "quite-other") == ": no such file"
    (tmp_path / "link.en").symlink_to("moved.en")
    assert fault(tmp_path / "link.en") == ": a link to moved.en, which does not exist; correct the link"
    assert fault(tmp_path / "lin.en") == ": no such file"
    written(tmp_path, "wiki4.txt", b"")
    assert fault(tmp_path / "missing.txt") == ": no such file"
    assert fault(tmp_path / "none" / "x") == f": no such file; there is no directory {tmp_path / 'none'} either"


def test_existing_but_unreadable_paths_are_refused(tmp_path: Path) -> None:
    assert fault(tmp_path) == ": a directory; name the files in it"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be opened" in fault(loop)
    with pytest.raises(DataError, match="a directory"):
        check_readable(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        check_readable(tmp_path / "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "a")
    path.chmod(0)
    assert "no permission" in fault(path)


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_bytes_that_are_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    path = written(tmp_path, "a.txt", "eins\nzwei\nä b".encode() + "ü".encode("latin-1") + b"c\nd\n")
    assert fault(path) == ":3: byte 0xfc at column 4 is not UTF-8; convert it: iconv -f latin-1 -t utf-8"
    path = written(tmp_path, "b.txt", "cut short: é".encode()[:-1])
    assert fault(path).startswith(":1: byte 0xc3 at column 12")
    assert "iconv -f utf-16" in fault(written(tmp_path, "c.txt", "wide".encode("utf-16")))


def test_lines_are_streamed(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", b"fine\n" * 500_000 + b"\xff")
    stream = read_lines(path)
    assert [next(stream) for _ in range(3)] == ["fine"] * 3
    with pytest.raises(DataError, match=":500001: "):
        list(stream)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data.tsv", "tsv"),
        ("DATA.TSV.GZ", "tsv"),
        ("a.b/data.csv.xz", "csv"),
        ("x.jsonl.zst", "jsonl"),
        ("x.en-fr.parquet", "parquet"),
        ("train.en", "text"),
        ("train.tsv.en", "text"),
        ("train.txt.gz", "text"),
        ("README", "text"),
        ("europarl.tsv/train", "text"),
        (".gz", "text"),
    ],
)
def test_file_format_follows_from_the_name(name: str, expected: str) -> None:
    assert file_format(name) == expected
    assert file_format(Path(name)) == expected


def test_text_needs_no_torch() -> None:
    code = "import sys, regard.text.pairs, regard.text.tokenizer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
