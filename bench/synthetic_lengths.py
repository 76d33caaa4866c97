"""Synthetic lengths of sentence pairs, distributed like those of news text, for benchmarks without real text."""

from __future__ import annotations

import numpy as np

NEWS_MEAN_LENGTH = 26
"""Mean of the log-normal lengths below, in tokens, before clipping."""


def sample_pair_lengths(n_pairs: int, *, seed: int, mean: float = NEWS_MEAN_LENGTH) -> np.ndarray:
    """Return source and target lengths (pairs, 2): log-normal with a given mean, sources within 15 % of targets."""
    generator = np.random.default_rng(seed)
    target = np.clip(generator.lognormal(3.1, 0.55, n_pairs) * (mean / NEWS_MEAN_LENGTH), 4, 100)
    source = np.clip(target * generator.uniform(0.85, 1.15, n_pairs), 4, 100)
    return np.stack([source, target], axis=1).astype(np.int32)
