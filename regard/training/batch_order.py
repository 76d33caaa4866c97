"""The order of batches of a run: packed rows, or buckets of similar length for models that cannot be packed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from regard.data.corpus import KEPT_SET
from regard.data.mixture import Mixture, make_mixture
from regard.data.order import BucketOrder, Order, PackedOrder
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.progress import warn
from regard.runs.recipe import RunConfig
from regard.tasks import Task

MAX_EMPTY_BATCH_TOKENS = 1 << 20
"""Tokens of a batch that may be more than all examples have: rows without examples take memory as well."""


def max_positions(run_config: RunConfig) -> int:
    """Return the positions that an example may take: the row width, or fewer if the model has fewer."""
    return min(run_config.data.max_length, run_config.model.n_positions)


def build_order(task: Task, store: TokenStore, run_config: RunConfig, *, seed: int, shuffle: bool = True) -> Order:
    """Return the order of batches over the examples that fit a row; a warning counts the others."""
    lengths = task.example_lengths(store)
    width, longest = run_config.data.max_length, max_positions(run_config)
    limit = f"data.max_length = {width}" if longest == width else f"model.n_positions = {longest}"
    is_fitting = (lengths <= longest).all(axis=1)
    if not is_fitting.any():
        raise ConfigError(
            f"{limit}: not one example to {store.purpose} on is that short; the longest takes {lengths.max():,}"
        )
    fitting = None if is_fitting.all() else np.flatnonzero(is_fitting)
    if fitting is not None:
        warn(
            f"{len(lengths) - len(fitting):,} of {len(lengths):,} examples to {store.purpose} on are longer than "
            f"{limit} tokens and are left out (the longest takes {lengths.max():,})"
        )
    items = _mix_sets(task, store, run_config, fitting, seed) if shuffle else fitting
    batch_tokens = _micro_batch_tokens(run_config)
    n_tokens = int(lengths[:, -1].sum(dtype=np.int64))
    if store.purpose == "train" and batch_tokens > max(n_tokens, MAX_EMPTY_BATCH_TOKENS):
        raise ConfigError(
            f"train.batch_tokens = {run_config.train.batch_tokens}, but all examples have {n_tokens:,} tokens; lower it"
        )
    if not run_config.uses_packing:
        return BucketOrder(lengths, batch_tokens, seed=seed, shuffle=shuffle, items=items)
    capacity = [width] * lengths.shape[1]
    return PackedOrder(lengths, capacity, batch_tokens // width, seed=seed, shuffle=shuffle, items=items)


def _mix_sets(
    task: Task, store: TokenStore, run_config: RunConfig, fitting: Int[np.ndarray, " items"] | None, seed: int
) -> Int[np.ndarray, " items"] | Mixture | None:
    """Return the mixture of the sets that examples were drawn from, where that matters; else what fits a row."""
    data = run_config.data
    if not data.has_sets:
        return fitting
    numbers = task.example_sets(store)
    chosen = np.arange(len(numbers)) if fitting is None else fitting
    sets = {int(number): chosen[numbers[chosen] == number] for number in np.unique(numbers[chosen])}
    if set(sets) <= {KEPT_SET}:
        raise ConfigError("not one example of data.train fits; raise data.max_length")
    return make_mixture(sets, temperature=data.temperature, kept_set=KEPT_SET, keep_ratio=data.keep_ratio, seed=seed)


def _micro_batch_tokens(run_config: RunConfig) -> int:
    """Return the tokens of a micro-batch, which must hold at least one row."""
    train, width = run_config.train, run_config.data.max_length
    if train.batch_tokens // train.accumulate < width:
        raise ConfigError(
            f"{train.describe_batch()} is less than one row of data.max_length = {width} tokens; raise it to "
            f"{width * train.accumulate} or more"
        )
    return train.batch_tokens // train.accumulate
