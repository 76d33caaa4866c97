"""Best-fit packing of items into rows, so that rows are nearly full.

Uses lengths and capacities only, no tokens and no files. An item has one length per side: one side for a
language model, two for pairs (source and target positions of the same row). Items of equal lengths are
interchangeable, so the work is done per kind of item (its lengths), not per item. `order.py` calls it once per pool;
`batches.py` then writes the rows, and `nn/mask.py` makes the attention mask from their segments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt

MAX_DISTINCT_LENGTHS = 4096
"""With more kinds, items are packed in halves, because each choice compares every kind."""


@dataclass(frozen=True)
class Packing:
    """The row of each item, counted from 0."""

    rows: Int[np.ndarray, " items"]
    n_rows: int


def pack(lengths: Int[np.ndarray, "items sides"], capacity: Sequence[int]) -> Packing:
    """Assign all items to rows within the capacity of every side; equal lengths always give equal rows."""
    longest = tuple(lengths.max(axis=0, initial=0).tolist())
    fits = all(length <= limit for length, limit in zip(longest, capacity, strict=True))
    assert fits, f"items of length {longest} for rows of {tuple(capacity)}"
    by_kind, first = _group_by_lengths(lengths, capacity)
    if len(first) > MAX_DISTINCT_LENGTHS:
        return _pack_halves(lengths, capacity)
    counts = np.diff(first, append=len(lengths))
    sizes, full = _scale_to_common_capacity(lengths[by_kind[first]], capacity)
    return _assign_rows(by_kind, list(_find_row_patterns(sizes, counts, full)))


def _group_by_lengths(
    lengths: Int[np.ndarray, "items sides"], capacity: Sequence[int]
) -> tuple[Int[np.ndarray, " items"], Int[np.ndarray, " kinds"]]:
    """Return the items sorted by kind, and where each kind begins in that order."""
    kind = np.zeros(len(lengths), dtype=np.int64)
    for side, limit in enumerate(capacity):
        kind = kind * (limit + 1) + lengths[:, side]
    if math.prod(limit + 1 for limit in capacity) <= 1 << 16:
        kind = kind.astype(np.uint16)  # numpy sorts these by radix, several times faster
    by_kind = np.argsort(kind, kind="stable")
    return by_kind, np.flatnonzero(np.diff(kind[by_kind], prepend=-1))


def _scale_to_common_capacity(
    lengths: Int[np.ndarray, "kinds sides"], capacity: Sequence[int]
) -> tuple[UInt[np.ndarray, "sides kinds"], int]:
    """Return lengths in a unit in which every side has the same capacity, and that capacity."""
    full = math.lcm(*capacity)
    unit = np.array([full // limit for limit in capacity])
    return np.ascontiguousarray((lengths * unit).T.astype(np.min_scalar_type(2 * full + 2))), full


def _find_row_patterns(
    sizes: UInt[np.ndarray, "sides kinds"], counts: Int[np.ndarray, " kinds"], capacity: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the kinds that fill one row, and how many rows to fill so, until a kind runs out; largest first."""
    by_size = np.argsort(capacity - sizes.max(axis=0), kind="stable")
    sizes, left = sizes[:, by_size], counts[by_size]
    while (active := np.flatnonzero(left)).size:
        row = Counter(_fill_row(sizes.take(active, axis=1), left[active], capacity))
        kinds, uses = active[list(row)], np.array(list(row.values()))
        times = int((left[kinds] // uses).min())
        left[kinds] -= times * uses
        yield by_size[kinds].repeat(uses).tolist(), times


def _fill_row(sizes: UInt[np.ndarray, "sides kinds"], remaining: Int[np.ndarray, " kinds"], capacity: int) -> list[int]:
    """Fill one row: the largest kind, then always the one that leaves the least space on the emptier side.

    Comparing the emptier side makes source and target grow together, which fills both.
    """
    space = np.full((len(sizes), 1), capacity, dtype=sizes.dtype)
    row, best = [], 0
    while True:
        row.append(best)
        space -= sizes[:, best, None]
        remaining[best] -= 1
        if remaining[best] == 0:
            sizes[:, best] = capacity + 1
        after = (space - sizes).max(axis=0)  # unsigned: a kind that does not fit wraps around to far above `capacity`
        best = int(after.argmin())
        if after[best] > capacity:
            return row


def _assign_rows(by_kind: Int[np.ndarray, " items"], patterns: list[tuple[list[int], int]]) -> Packing:
    """Return the row of each item: the items of a kind go in order to the rows with that kind."""
    times = np.array([n for _, n in patterns], dtype=np.int64)
    width = np.array([len(kinds) for kinds, _ in patterns], dtype=np.int64)
    first_row = np.repeat(np.cumsum(times) - times, width)
    by_pattern_kind = np.argsort(
        np.array([kind for kinds, _ in patterns for kind in kinds], dtype=np.int64), kind="stable"
    )
    rows = np.empty(len(by_kind), dtype=np.int32)
    rows[by_kind] = concatenate_ranges(first_row[by_pattern_kind], np.repeat(times, width)[by_pattern_kind])
    return Packing(rows, int(times.sum()))


def concatenate_ranges(starts: Int[np.ndarray, " runs"], counts: Int[np.ndarray, " runs"]) -> Int[np.ndarray, " total"]:
    """Return concatenated ranges of consecutive numbers: `starts[i], starts[i] + 1, ...`, `counts[i]` of them."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def _pack_halves(lengths: Int[np.ndarray, "items sides"], capacity: Sequence[int]) -> Packing:
    even, odd = pack(lengths[0::2], capacity), pack(lengths[1::2], capacity)
    rows = np.empty(len(lengths), dtype=np.int32)
    rows[0::2], rows[1::2] = even.rows, odd.rows + even.n_rows
    return Packing(rows, even.n_rows + odd.n_rows)
