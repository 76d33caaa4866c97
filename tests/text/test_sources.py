"""Sources of a translator: lines, one column of a table, or the sources of pairs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from regard.errors import ConfigError, DataError
from regard.text.sources import read_sources, source_paths


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("one\n\ntwo\n")
    Path("a.fr").write_text("un\nvide\ndeux\n")
    Path("b.en.gz").write_bytes(gzip.compress(b"three\n"))
    Path("t.tsv").write_text("x\tun\n\ndeux\ttwo\n")
    Path("h.csv").write_text("id,en\n1,one\n2,two\n")
    Path("j.jsonl").write_text('{"source": "four", "other": 1}\n')
    return tmp_path


def read(*data: str, **options: Any) -> list[tuple[str, ...]]:
    return [tuple(filter(None, example)) or ("",) for example in read_sources(list(data), **options)]


def test_texts_in_order_with_blank_ones(folder: Path) -> None:
    assert read("a.en", "b.en.gz") == [("one",), ("",), ("two",), ("three",)]


def test_column_of_a_table(folder: Path) -> None:
    """By default the first, or of a pair of columns the first; those of the options serve all tables."""
    assert read("t.tsv") == [("x",), ("",), ("deux",)]
    assert read("t.tsv:2") == read("t.tsv:2,1") == [("un",), ("",), ("two",)]
    assert read("h.csv:en", "j.jsonl") == [("one",), ("two",), ("four",)]
    assert read("h.csv", columns=["en", "id"]) == [("one",), ("two",)]


def test_pairs_are_those_of_training(folder: Path) -> None:
    assert read("h.csv:id,en", pairs=True) == [("1", "one"), ("2", "two")]
    with pytest.raises(DataError, match=r"a\.en:2: empty source; drop the line or pass --skip-empty"):
        read("a.en", "a.fr", pairs=True)
    assert read("a.en", "a.fr", pairs=True, skip_empty=True) == [("one", "un"), ("two", "deux")]


def test_paths_are_checked(folder: Path) -> None:
    assert source_paths(["a.en", "t.tsv:2", "j.jsonl"], pairs=False) == [Path("a.en"), Path("t.tsv"), Path("j.jsonl")]
    assert source_paths(["a.en", "a.fr"], pairs=True) == [Path("a.en"), Path("a.fr")]
    with pytest.raises(ConfigError, match=r"a\.en and a\.fr: two sides of pairs"):
        source_paths(["a.en", "j.jsonl", "a.fr"], pairs=False)
    Path("b.fr.gz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"b\.en\.gz and b\.fr\.gz: two sides of pairs"):
        source_paths(["b.en.gz", "b.fr.gz"], pairs=False)
    with pytest.raises(ConfigError, match="not from standard input"):
        source_paths(["-"], pairs=False)
    with pytest.raises(ConfigError, match="no texts"):
        source_paths([], pairs=False)
    with pytest.raises(DataError, match="nowhere: no such file"):
        source_paths(["nowhere"], pairs=False)
    with pytest.raises(DataError, match="expected one, the source"):
        source_paths(["t.tsv:1,2,3"], pairs=False)
