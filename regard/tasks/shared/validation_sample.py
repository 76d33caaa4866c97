"""The examples that a task's metrics are computed on: all that fit the model, or a sample of them drawn by hash.

Decoding for BLEU is slow, so a translator is scored on a sample at each validation and on all pairs at the end of
training. The hash of an example's text orders the sample: it is the same in every run, whatever the order of the file.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from regard.data.store import TokenStore
from regard.tasks.task import Task
from regard.text.fingerprints import hash_text


def select_scored_examples(
    task: Task, store: TokenStore, n_positions: int, max_examples: int | None = None
) -> Int[np.ndarray, " items"]:
    """Return the indices of the examples that fit the model, in file order: all, or those of the lowest hashes.

    Every stratum has the same share of a sample, as far as it has examples.
    """
    fitting = np.flatnonzero((task.example_lengths(store) <= n_positions).all(axis=1))
    if max_examples is None or len(fitting) <= max_examples:
        return fitting
    hashes = np.fromiter((hash_text(task.example_text(store, item)) for item in fitting.tolist()), np.uint64)
    by_hash = np.argsort(hashes, kind="stable")
    strata = task.example_strata(store)[fitting][by_hash]
    rank = np.zeros(len(by_hash), dtype=np.int64)  # within its stratum
    for stratum in np.unique(strata):
        rank[strata == stratum] = np.arange(np.count_nonzero(strata == stratum))
    return fitting[np.sort(by_hash[np.argsort(rank, kind="stable")[:max_examples]])]
