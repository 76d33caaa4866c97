"""The order of batches: a pure function of (seed, epoch, position), so a run resumes exactly.

Returns placements, not tensors, from lengths alone (`batches.py` copies the ids). The training loop iterates over
`Order.iterate` and saves the cursor; evaluation uses `iterate_epoch`. An order determines the shape of its batches, so
that a loop need not know whether rows are packed or hold one sentence each.

    epoch      all items, shuffled:   3 7 1 9 4 0 | 8 2 6 5 ...           split into pools
    packed     a pool packed into rows, rows shuffled:   [3 1] [9] [0 7 4]     distributed evenly over batches
    buckets    a pool sorted by length, one item a row:  [9 3] [1 0 4 7]       batches shuffled
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int, Integer

from regard.data.mixture import Mixture
from regard.data.packing import Packing, pack

MIN_POOL_ITEMS = 1 << 16
"""Items in a pool at least; larger pools hardly improve packing efficiency and make resuming slower."""
MIN_POOL_BATCHES = 100
"""Batches in a pool at least: their empty rows are fewer than those of one batch."""


@dataclass(frozen=True)
class Cursor:
    """The position of a run in its data: the next batch."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0

    @classmethod
    def from_dict(cls, saved: Mapping[str, int]) -> Cursor:
        return cls(saved["epoch"], saved["pool"], saved["batch"])


@dataclass(frozen=True)
class Placement:
    """One batch: its items, the row of each (ascending; the items of a row in their order), and its shape.

    With `one_item_per_row` rows are not packed. The content of an item may depend on the `epoch`, but not its length.
    """

    items: Int[np.ndarray, " items"]
    rows: Int[np.ndarray, " items"]
    n_rows: int
    widths: tuple[int, ...]
    one_item_per_row: bool = False
    epoch: int = 0

    def split_items(self, owner: Int[np.ndarray, " parts"]) -> Placement:
        """Return the placement of parts of items, `owner` being the index of the item of each part."""
        n_parts = len(owner)
        rows, n_rows = (np.arange(n_parts), n_parts) if self.one_item_per_row else (self.rows[owner], self.n_rows)
        return dataclasses.replace(self, items=self.items[owner], rows=rows, n_rows=n_rows)


@dataclass(frozen=True)
class EpochEstimate:
    """Batches in an epoch, and the fraction of their positions that hold a token, per side."""

    n_batches: int
    packing_efficiency: tuple[float, ...]


class Order(ABC):
    """The order of batches; subclasses define the batches of one pool."""

    n_pools: int

    @abstractmethod
    def pool_batches(self, epoch: int, pool: int) -> list[Placement]:
        """Return the batches of one pool, a pure function; together the pools of an epoch hold every item once."""

    @abstractmethod
    def estimate(self) -> EpochEstimate: ...

    def iterate(self, cursor: Cursor | None = None) -> Iterator[tuple[Placement, Cursor]]:
        """Yield batches from the cursor on, endlessly, each with the cursor after it."""
        cursor = cursor or Cursor()
        assert cursor.pool < self.n_pools, f"{cursor} in an order of {self.n_pools} pools"
        while True:
            batches, next_pool = self.pool_batches(cursor.epoch, cursor.pool), self._next_pool(cursor)
            for index in range(cursor.batch, len(batches)):
                last = index + 1 == len(batches)
                yield batches[index], next_pool if last else dataclasses.replace(cursor, batch=index + 1)
            cursor = next_pool

    def iterate_epoch(self, epoch: int = 0) -> Iterator[Placement]:
        """Yield the batches of one epoch."""
        for pool in range(self.n_pools):
            yield from self.pool_batches(epoch, pool)

    def _next_pool(self, cursor: Cursor) -> Cursor:
        if cursor.pool + 1 < self.n_pools:
            return Cursor(cursor.epoch, cursor.pool + 1)
        return Cursor(cursor.epoch + 1)


@dataclass(eq=False)
class PooledOrder(Order):
    """The items, a selection or a mixture of them, shuffled in each epoch and split into pools."""

    lengths: Int[np.ndarray, "items sides"]
    _: KW_ONLY
    seed: int
    shuffle: bool = True
    pool_size: int | None = None
    items: Int[np.ndarray, " chosen"] | Mixture | None = None

    def __post_init__(self) -> None:
        if isinstance(self.items, Mixture):
            self._n_items = self.items.n_items
        else:
            self._n_items = len(self.lengths) if self.items is None else len(self.items)
        assert self._n_items > 0, "no items to put in order"
        self.n_pools = max(1, self._n_items // (self.pool_size or self._default_pool_size()))
        self._cached_permutation: tuple[int, Integer[np.ndarray, " items"]] | None = None

    @abstractmethod
    def _default_pool_size(self) -> int:
        """Return the number of items in a pool if none is given."""

    def estimate(self) -> EpochEstimate:
        """Estimate from the batches of the first pool; exact if it is the only one."""
        batches, lengths = self.pool_batches(0, 0), self.lengths[self._pool_items(0, 0)]
        n_positions = sum(batch.n_rows * np.array(batch.widths, dtype=np.int64) for batch in batches)
        efficiency = lengths.sum(axis=0, dtype=np.int64) / n_positions
        n_batches = round(len(batches) * self._n_items / len(lengths))
        return EpochEstimate(n_batches, tuple(efficiency.tolist()))

    def _pool_items(self, epoch: int, pool: int) -> Int[np.ndarray, " items"]:
        first, last = (self._n_items * index // self.n_pools for index in (pool, pool + 1))
        return self._permutation(epoch)[first:last].astype(np.int64)

    def _permutation(self, epoch: int) -> Integer[np.ndarray, " items"]:
        """Return all items in the order of that epoch, cached for its next pools."""
        if self._cached_permutation is None or self._cached_permutation[0] != epoch:
            dtype = np.min_scalar_type(len(self.lengths))
            chosen = self.items.draw(epoch) if isinstance(self.items, Mixture) else self.items
            items = np.arange(self._n_items, dtype=dtype) if chosen is None else chosen.astype(dtype)
            if self.shuffle:
                _make_generator(self.seed, epoch).shuffle(items)
            self._cached_permutation = epoch, items
        return self._cached_permutation[1]


@dataclass(eq=False)
class PackedOrder(PooledOrder):
    """Batches of one constant shape with packed rows."""

    capacity: Sequence[int]
    rows_per_batch: int

    def _default_pool_size(self) -> int:
        rows_per_item = float((np.maximum(self.lengths.mean(axis=0), 1) / self.capacity).max())
        return max(MIN_POOL_ITEMS, math.ceil(MIN_POOL_BATCHES * self.rows_per_batch / rows_per_item))

    def pool_batches(self, epoch: int, pool: int) -> list[Placement]:
        """Pack the pool, shuffle its rows and distribute them over batches."""
        items = self._pool_items(epoch, pool)
        packing = pack(self.lengths[items], self.capacity)
        if self.shuffle:
            permuted = _make_generator(self.seed, epoch, pool + 1).permutation(packing.n_rows).astype(np.int32)
            packing = Packing(permuted[packing.rows], packing.n_rows)
        return self._distribute_rows(items, packing, epoch)

    def _distribute_rows(self, items: Int[np.ndarray, " items"], packing: Packing, epoch: int) -> list[Placement]:
        """Distribute the rows evenly over as few batches as possible, so that none has only a few rows."""
        by_row = np.argsort(packing.rows.astype(np.min_scalar_type(packing.n_rows)), kind="stable")
        items, rows = items[by_row], packing.rows[by_row]
        n_batches = math.ceil(packing.n_rows / self.rows_per_batch)
        first_row = np.arange(n_batches + 1) * packing.n_rows // n_batches
        cuts = np.searchsorted(rows, first_row).tolist()
        return [
            Placement(items[i:j], rows[i:j] - first, self.rows_per_batch, tuple(self.capacity), epoch=epoch)
            for (i, j), first in zip(pairwise(cuts), first_row[:-1].tolist(), strict=True)
        ]


@dataclass(eq=False)
class BucketOrder(PooledOrder):
    """Batches of items of similar length, one in each row, padded to the longest, of about `batch_tokens` positions.

    The length of an item is that of its longest side.
    """

    batch_tokens: int

    def _default_pool_size(self) -> int:
        mean = float(np.maximum(self.lengths.max(axis=1), 1).mean())
        return max(MIN_POOL_ITEMS, math.ceil(MIN_POOL_BATCHES * self.batch_tokens / mean))

    def pool_batches(self, epoch: int, pool: int) -> list[Placement]:
        """Sort the pool from the longest items to the shortest, split it, and shuffle the batches."""
        items = self._pool_items(epoch, pool)
        sides = self.lengths[items]
        longest_first = np.lexsort((*sides.T, sides.max(axis=1)))[::-1]
        items, sides = items[longest_first], sides[longest_first]
        cuts = _batch_boundaries(np.maximum(sides.max(axis=1), 1), self.batch_tokens)
        batches = [_place_one_per_row(items[i:j], sides[i:j], epoch) for i, j in pairwise(cuts)]
        if not self.shuffle:
            return batches
        return [batches[i] for i in _make_generator(self.seed, epoch, pool + 1).permutation(len(batches))]


def _place_one_per_row(
    items: Int[np.ndarray, " items"], sides: Int[np.ndarray, "items sides"], epoch: int
) -> Placement:
    """Return a batch with one item in each row."""
    rows = np.arange(len(items), dtype=np.int32)
    return Placement(items, rows, len(items), tuple(sides.max(axis=0).tolist()), one_item_per_row=True, epoch=epoch)


def _batch_boundaries(widths: Int[np.ndarray, " items"], max_tokens: int) -> list[int]:
    """Return where to split items, longest first: batches of at most `max_tokens` positions, or of one item.

    The last two batches share their items evenly, so that none has only a few rows.
    """
    cuts = [0]
    while cuts[-1] < len(widths):
        cuts.append(min(len(widths), cuts[-1] + max(1, max_tokens // int(widths[cuts[-1]]))))
    if len(cuts) > 2:
        cuts[-2] = min(cuts[-2], (cuts[-3] + cuts[-1]) // 2)
    return cuts


def _make_generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(key))
