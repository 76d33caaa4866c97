"""CRC-32 computed on all cores: several threads compute those of parts, which are joined.

The result is that of `zlib.crc32` over everything, whatever the number of threads.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

CHECKSUM_TYPE = "crc32:"
"""The beginning of a checksum; a file that contains it has one, even if it is damaged."""

PART_BYTES = 1 << 20
"""Bytes that a thread hashes at a time; what is shorter is not worth a thread."""

_POLYNOMIAL, _ONE, _X_TO_THE_8 = 0xEDB88320, 1 << 31, 1 << 23
"""The polynomial of CRC-32 and two others, as zlib writes them: the highest bit is the coefficient of x^0."""


def compute_checksum(chunks: Iterable[bytes | memoryview]) -> str:
    """Return the checksum of the concatenated chunks: CRC-32, which is fast and can be computed in parts."""
    value = 0
    with ThreadPoolExecutor() as pool:  # starts no thread before it has work
        parts = [
            part if len(part) < PART_BYTES else (pool.submit(zlib.crc32, part), len(part))
            for chunk in chunks
            for part in _split(memoryview(chunk))
        ]
        for part in parts:
            value = join_crc32(value, part[0].result(), part[1]) if isinstance(part, tuple) else zlib.crc32(part, value)
    return format_checksum(value)


def format_checksum(crc32: int) -> str:
    """Return a CRC-32 as files have it."""
    return f"{CHECKSUM_TYPE}{crc32:08x}"


def join_crc32(first: int, second: int, n_bytes: int) -> int:
    """Return the CRC-32 of two parts from those of each, where the second has so many bytes."""
    return _multiply(_shift(n_bytes), first) ^ second


def _split(chunk: memoryview) -> Iterator[memoryview]:
    return (chunk[start : start + PART_BYTES] for start in range(0, len(chunk), PART_BYTES))


@lru_cache(maxsize=256)
def _shift(n_bytes: int) -> int:
    """Return x^(8 n) modulo the polynomial: the factor by which as many bytes behind it change a CRC-32."""
    power, square = _ONE, _X_TO_THE_8
    while n_bytes:
        if n_bytes & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        n_bytes >>= 1
    return power


def _multiply(left: int, right: int) -> int:
    """Return the product of two polynomials over GF(2) modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if left & bit:
            product ^= right
        right = (right >> 1) ^ (_POLYNOMIAL if right & 1 else 0)
        bit >>= 1
    return product
