"""Documents between blank lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import ConfigError, DataError
from regard.text import documents
from regard.text.documents import read_documents


def write(folder: Path, text: str, name: str = "a.txt") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_blank_lines_part_them(tmp_path: Path) -> None:
    files = [write(tmp_path, "\n\none\n two \n \n\nthree\n"), write(tmp_path, "four", "b.txt")]
    assert list(read_documents(files)) == [("one\ntwo",), ("three",), ("four",)]


def test_a_very_long_one_counts_as_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_LINES", 2)
    assert list(read_documents([write(tmp_path, "1\n2\n3\n4\n5\n\n6\n")])) == [("1\n2",), ("3\n4",), ("5",), ("6",)]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data; name files of plain text, with blank lines between documents"):
        read_documents([])
    with pytest.raises(DataError, match=r"a.tsv: a table; plain text is read here"):
        read_documents([write(tmp_path, "x\ty\n", "a.tsv")])
    with pytest.raises(DataError, match=r"a.txt: no text; every line is blank"):
        list(read_documents([write(tmp_path, "\n \n")]))
    with pytest.raises(DataError, match="no such file"):
        read_documents(["nowhere.txt"])
