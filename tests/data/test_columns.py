"""Columns of a store: lengths and counts, without copies of all that is memory-mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from regard.data import columns
from regard.data.columns import Column, TokenColumnSpec, release_pages
from regard.data.store import TokenStore


@pytest.mark.parametrize("block", [1, 3, 1000])
def test_counts_are_those_of_all_ids(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BLOCK_VALUES", block)
    ids = np.random.default_rng(0).integers(0, 9, 50).tolist()
    specs = [TokenColumnSpec("text", 12)]
    stored = TokenStore.write(tmp_path / "s", specs, [[[ids[:20], ids[20:]]]], fingerprint="")["text"]
    for column in (stored, Column.from_sentences([ids])):
        assert column.count_ids(12).tolist() == np.bincount(ids, minlength=12).tolist()


def test_lengths_hold_beyond_two_to_the_31() -> None:
    offsets = np.array([0, 5, 2**31 - 1, 2**31 + 3, 2**33], dtype=np.int64)[[0, 1]]
    far = offsets + 2**31 - 3
    assert Column(np.empty(0, np.uint16), far).lengths.tolist() == [5]


def test_released_pages_are_read_again(tmp_path: Path) -> None:
    np.arange(10_000, dtype=np.uint16).tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.uint16, mode="r")
    release_pages(mapped)
    assert mapped.sum(dtype=np.int64) == 10_000 * 9_999 // 2
    release_pages(np.arange(3))
