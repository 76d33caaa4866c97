"""Batches of skip-gram pairs: words of consecutive text in blocks, subsampled, with windows and negatives drawn.

As in word2vec (Mikolov et al. 2013), the frequent words that are left out, the width of each word's window, and
negatives (in proportion to a power of their frequency) are drawn at random. The draws are a function of the placement
alone, so a resumed run repeats them. regard/nn/skip_gram.py draws a block; tasks/vectors.py calls this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from regard.data.batches import TensorDataclass
from regard.data.lm_windows import LanguageModelWindows
from regard.data.order import Placement
from regard.data.packing import concatenate_ranges

CENTRES_PER_BLOCK = 64
"""Words of a block: enough for efficient matrix multiplications; most columns of a longer one would be outside."""

NEGATIVES_PER_BLOCK = 32
"""Negatives that the words of a block share."""

NEGATIVE_SAMPLING_POWER = 0.75
"""Negatives are drawn in proportion to their frequency to this power (Mikolov et al. 2013, section 2.2)."""

N_SEED_ITEMS = 16
"""Items of a placement that seed its generator."""


@dataclass(frozen=True)
class SkipGramBatch(TensorDataclass):
    """Blocks of words: their ids, those of the columns they are scored against, and the reach of their windows.

    `n_tokens` is the number of pairs, `n_input_tokens` that of words before subsampling.
    """

    centres: Int[Tensor, "blocks centres"]
    columns: Int[Tensor, "blocks columns"]
    n_before: Int[Tensor, "blocks centres"]
    n_after: Int[Tensor, "blocks centres"]
    n_tokens: int
    n_input_tokens: int


@dataclass(frozen=True)
class SkipGramSampler:
    """Draws batches: the probability to keep each word, the cumulative distribution of negatives, the widest window."""

    keep_probability: Float[np.ndarray, " V"]
    negative_cdf: Float[np.ndarray, " V"]
    window: int

    @classmethod
    def from_counts(
        cls, counts: Integer[np.ndarray, " V"], *, subsample: float, window: int, excluded_ids: list[int]
    ) -> SkipGramSampler:
        """Return the sampler for words of these counts; excluded ones, such as the unknown word, are never drawn.

        A word of frequency f is kept with probability ``sqrt(t / f) + t / f``, t being `subsample`, as in word2vec's
        own code; 0 keeps all.
        """
        used = counts.astype(np.float64)
        used[excluded_ids] = 0.0
        frequency = np.maximum(used / max(used.sum(), 1.0), 1e-300)
        keep = (
            np.minimum(1.0, np.sqrt(subsample / frequency) + subsample / frequency) if subsample else np.ones(len(used))
        )
        cdf = np.cumsum(used**NEGATIVE_SAMPLING_POWER)
        return cls(np.where(used > 0, keep, 0.0).astype(np.float32), cdf / max(cdf[-1], 1e-300), window)

    def make_batch(self, windows: LanguageModelWindows, placement: Placement) -> SkipGramBatch:
        """Return the blocks of the texts of a placement, with all that is drawn."""
        generator = np.random.Generator(np.random.PCG64([placement.epoch, *placement.items[:N_SEED_ITEMS].tolist()]))
        _, starts, lengths = windows.segments(placement.items, placement.epoch)
        ids = windows.column.ids[concatenate_ranges(starts, lengths)].astype(np.int64)
        kept = generator.random(len(ids), dtype=np.float32) < self.keep_probability[ids]
        segments = np.repeat(np.arange(len(lengths)), lengths)[kept]
        n_before, n_after = self._draw_windows(np.bincount(segments, minlength=len(lengths)), generator)
        return self._cut_blocks(ids[kept], n_before, n_after, len(ids), generator)

    def _draw_windows(
        self, lengths: Int[np.ndarray, " segments"], generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, " words"], Int[np.ndarray, " words"]]:
        """Return the context words before and after each word: up to a drawn number, within its text."""
        position = concatenate_ranges(np.zeros_like(lengths), lengths)
        radius = generator.integers(1, self.window + 1, len(position))
        return np.minimum(radius, position), np.minimum(radius, np.repeat(lengths, lengths) - 1 - position)

    def _cut_blocks(
        self,
        ids: Int[np.ndarray, " words"],
        n_before: Int[np.ndarray, " words"],
        n_after: Int[np.ndarray, " words"],
        n_input_tokens: int,
        generator: np.random.Generator,
    ) -> SkipGramBatch:
        """Split words into blocks; the last is padded with words that have no window."""
        n_blocks = max(1, -(-len(ids) // CENTRES_PER_BLOCK))
        size, n_pairs = n_blocks * CENTRES_PER_BLOCK, int(n_before.sum() + n_after.sum())

        def pad(values: Int[np.ndarray, " words"], margin: int = 0) -> Int[np.ndarray, " size"]:
            return np.pad(values, (margin, size - len(values) + margin))

        def in_blocks(values: Int[np.ndarray, " words"]) -> Int[Tensor, "blocks centres"]:
            return torch.from_numpy(pad(values).reshape(n_blocks, -1))

        windows = np.lib.stride_tricks.sliding_window_view(pad(ids, self.window), CENTRES_PER_BLOCK + 2 * self.window)
        drawn = np.searchsorted(self.negative_cdf, generator.random((n_blocks, NEGATIVES_PER_BLOCK)), side="right")
        columns = np.concatenate((windows[::CENTRES_PER_BLOCK], np.minimum(drawn, len(self.negative_cdf) - 1)), 1)
        return SkipGramBatch(
            in_blocks(ids),
            torch.from_numpy(columns),
            in_blocks(n_before),
            in_blocks(n_after),
            max(1, n_pairs),
            n_input_tokens,
        )
