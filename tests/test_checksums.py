"""Checksums computed in parts by several threads: the value of one CRC-32 over everything."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from regard import checksums
from regard.checksums import compute_checksum, join_crc32


def random_bytes(n_bytes: int) -> bytes:
    return np.random.default_rng(n_bytes).bytes(n_bytes)


@pytest.mark.parametrize("n_bytes", [0, 1, 7, 256, 100_001])
def test_joined_values_are_those_of_the_whole(n_bytes: int) -> None:
    first, second = random_bytes(33), random_bytes(n_bytes)
    assert join_crc32(zlib.crc32(first), zlib.crc32(second), n_bytes) == zlib.crc32(first + second)
    assert join_crc32(zlib.crc32(second), zlib.crc32(first), 33) == zlib.crc32(second + first)


@pytest.mark.parametrize("part_bytes", [1, 10, 64, 1000])
def test_checksum_depends_neither_on_parts_nor_on_chunks(monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    monkeypatch.setattr(checksums, "PART_BYTES", part_bytes)
    whole = random_bytes(999)
    for sizes in ([999], [0, 10, 989], [64, 64, 871], [3, 996]):
        ends = np.cumsum(sizes)
        chunks = [whole[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        assert compute_checksum(chunks) == compute_checksum(map(memoryview, chunks)) == f"crc32:{zlib.crc32(whole):08x}"
    assert compute_checksum([]) == "crc32:00000000"
