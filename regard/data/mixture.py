"""The items of an epoch where several sets are mixed: how many of each set, and which.

    counts    by the sizes of the sets to the power 1 / temperature (Arivazhagan et al. 2019), the total unchanged
    items     each set in an order of its own; an epoch goes on in it where the epoch before ended, and begins again
              at its end

So large sets are seen whole, over several epochs, and small ones are repeated. All is a function of (seed, epoch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, eq=False)
class Mixture:
    """Sets of items, and how many of each an epoch has."""

    sets: Sequence[Int[np.ndarray, " _"]]
    counts: Sequence[int]
    seed: int

    @property
    def n_items(self) -> int:
        """The number of items of an epoch."""
        return sum(self.counts)

    @property
    def longest_pass(self) -> float:
        """The epochs that it takes to see all items once."""
        return max(len(items) / count for items, count in zip(self.sets, self.counts, strict=True))

    def draw(self, epoch: int) -> Int[np.ndarray, " drawn"]:
        """Return the items of an epoch, set by set."""
        return np.concatenate(
            [
                items[(epoch * count + np.arange(count)) % len(items)]
                for items, count in zip(self._shuffled_sets, self.counts, strict=True)
            ]
        )

    @cached_property
    def _shuffled_sets(self) -> list[Int[np.ndarray, " _"]]:
        generator = np.random.Generator(np.random.PCG64((self.seed, len(self.sets))))
        return [generator.permutation(items) for items in self.sets]


def make_mixture(
    sets: Mapping[int, Int[np.ndarray, " _"]],
    *,
    temperature: float,
    kept_set: int,
    keep_ratio: float,
    seed: int,
) -> Mixture:
    """Return the mixture of the sets; the kept one, if it is among them, is the fraction `keep_ratio` of an epoch."""
    own = [items for number, items in sorted(sets.items()) if number != kept_set]
    counts = tempered_counts([len(items) for items in own], temperature)
    if kept_set not in sets or not keep_ratio:
        return Mixture(own, counts, seed)
    n_kept = max(1, round(keep_ratio / (1 - keep_ratio) * sum(counts)))
    return Mixture([*own, sets[kept_set]], [*counts, n_kept], seed)


def tempered_counts(sizes: Sequence[int], temperature: float) -> list[int]:
    """Return how many items of each set an epoch has, by sizes to the power 1 / temperature; at least one of each."""
    weights = np.array(sizes, dtype=np.float64) ** (1 / temperature)
    return [max(1, round(float(each))) for each in weights / weights.sum() * sum(sizes)]
