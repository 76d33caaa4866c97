"""JSON files read entry by entry: the values of the whole file, wherever blocks end, and each fault in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text import files
from regard.text.json_entries import read_json_entries

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def read(path: Path) -> list[Any]:
    return list(read_json_entries(path, "data", "expected a list"))


def fault(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DataError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entries=st.lists(values, max_size=4),
    others=st.dictionaries(st.text(max_size=3).filter("data".__ne__), values, max_size=2),
    block=st.integers(1, 40),
    indent=st.sampled_from([None, 1]),
    is_list=st.booleans(),
)
def test_entries_are_those_of_the_whole_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: list[Any],
    others: dict[str, Any],
    block: int,
    indent: int | None,
    is_list: bool,
) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    path = tmp_path / "x.json"
    whole = entries if is_list else {**others, "data": entries, "version": 2}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=block % 2 == 0), encoding="utf-8")
    assert read(path) == entries


@pytest.mark.parametrize("block", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: not JSON: expecting value (character 1)"),
        ("[1,\n\n2", ":3: not JSON: expecting ',' delimiter (character 7)"),
        ("[1 2]", ":1: not JSON: expecting ',' delimiter (character 4)"),
        ("[1,]", ":1: not JSON: illegal trailing comma (character 4)"),
        ("[1]\n[2]", ":2: not JSON: extra data (character 5)"),
        ('{"a" 1}', ":1: not JSON: expecting property name enclosed in double quotes and ':' (character 6)"),
        ("{1: 2}", ":1: not JSON: expecting property name enclosed in double quotes and ':' (character 2)"),
        ('[{"a": "b', ":1: not JSON: unterminated string starting at (character 8)"),
        ('[{"a": tru}, 1, 2, 3, 4, 5, 6, 7]', ":1: not JSON: expecting value (character 8)"),
        (f"[{'9' * 5000}]", ":1: not JSON: exceeds the limit (4300 digits)"),
        ("[" * 200_000, ":1: not JSON: too deeply nested"),
        ('{"data": {}}', ": expected a list"),
        ("7", ": expected a list"),
        (b'["\xff"]', ": byte 0xff is not UTF-8; convert it: iconv -f latin-1 -t utf-8"),
        (b'["\xc3', ": byte 0xc3 is not UTF-8"),
    ],
    ids=lambda value: str(value[:20]) if isinstance(value, str | bytes) else "",
)
def test_faults_name_their_position(
    text: str | bytes, message: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(text) > 1000 and block < 100:
        block = 1000
    monkeypatch.setattr(files, "BLOCK_BYTES", block)
    assert fault(tmp_path / "x.json", text).startswith(message)
