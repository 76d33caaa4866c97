"""The order of batches: every item once an epoch, reproducible from any cursor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from regard.data import order as order_module
from regard.data.order import BucketOrder, Cursor, PackedOrder, Placement

CAPACITY = (32, 24)


def lengths(n_items: int) -> np.ndarray:
    return np.random.default_rng(n_items).integers(1, 20, (n_items, 2)).astype(np.int32)


def make(n_items: int = 230, *, seed: int = 1, shuffle: bool = True, pool_size: int | None = 60) -> PackedOrder:
    return PackedOrder(lengths(n_items), CAPACITY, 5, seed=seed, shuffle=shuffle, pool_size=pool_size)


def plain(placements: Sequence[Placement]) -> list[tuple[list[int], list[int]]]:
    return [(placement.items.tolist(), placement.rows.tolist()) for placement in placements]


def items(placements: Sequence[Placement]) -> list[int]:
    return [item for placement in placements for item in placement.items.tolist()]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("n_items", "pool_size"), [(1, None), (7, 2), (230, None), (230, 60), (230, 1)])
def test_an_epoch_holds_every_item_once(n_items: int, pool_size: int | None, shuffle: bool) -> None:
    order = make(n_items, shuffle=shuffle, pool_size=pool_size)
    for epoch in (0, 3):
        assert sorted(items(list(order.iterate_epoch(epoch)))) == list(range(n_items))


def test_rows_and_batches_are_within_their_size() -> None:
    order = make()
    for placement in order.iterate_epoch():
        assert placement.n_rows == 5
        assert placement.widths == CAPACITY
        assert placement.items.dtype == np.int64
        assert placement.rows.dtype == np.int32
        assert (np.diff(placement.rows) >= 0).all()
        assert placement.rows[0] == 0
        assert placement.rows[-1] < 5
        for side, width in enumerate(CAPACITY):
            assert np.bincount(placement.rows, order.lengths[placement.items, side]).max() <= width


def test_batches_of_a_pool_differ_by_one_row_at_most() -> None:
    order = make(pool_size=None)
    n_rows = [placement.rows[-1] + 1 for placement in order.iterate_epoch()]
    assert max(n_rows) - min(n_rows) <= 1
    assert len(n_rows) == -(-sum(n_rows) // 5)


def test_the_same_seed_gives_the_same_order() -> None:
    assert plain(list(make().iterate_epoch())) == plain(list(make().iterate_epoch()))


def test_another_seed_or_epoch_gives_another_order() -> None:
    first = plain(list(make().iterate_epoch()))
    assert first != plain(list(make(seed=2).iterate_epoch()))
    assert first != plain(list(make().iterate_epoch(1)))


def test_unshuffled_epochs_are_equal_and_pools_keep_the_order_of_the_items() -> None:
    order = make(shuffle=False)
    assert plain(list(order.iterate_epoch())) == plain(list(order.iterate_epoch(1)))
    assert sorted(items(order.pool_batches(0, 1))) == list(range(230 // 3, 2 * 230 // 3))


@pytest.mark.parametrize("pool_size", [60, None])
def test_any_cursor_continues_exactly(pool_size: int | None) -> None:
    order = make(pool_size=pool_size)
    n_batches = 2 * len(list(order.iterate_epoch())) + 3
    whole = list(islice(order.iterate(), n_batches))
    assert whole[-1][1].epoch == 2
    for done in range(n_batches):
        cursor = whole[done - 1][1] if done else Cursor()
        tail = list(islice(make(pool_size=pool_size).iterate(cursor), n_batches - done))
        assert plain([placement for placement, _ in tail]) == plain([placement for placement, _ in whole[done:]])
        assert [after for _, after in tail] == [after for _, after in whole[done:]]


def test_iteration_continues_with_the_next_epoch() -> None:
    order = make()
    epochs = list(order.iterate_epoch(0)) + list(order.iterate_epoch(1))
    walked = [placement for placement, _ in islice(order.iterate(), len(epochs))]
    assert plain(walked) == plain(epochs)


def test_cursor_json_round_trip() -> None:
    cursor = Cursor(3, 1, 4)
    assert Cursor.from_dict(json.loads(json.dumps(dataclasses.asdict(cursor)))) == cursor


def test_a_cursor_of_another_order_is_refused() -> None:
    with pytest.raises(AssertionError, match="3 pools"):
        next(make().iterate(Cursor(pool=3)))


def test_the_estimate_of_one_pool_is_exact() -> None:
    order = make(pool_size=None)
    estimate = order.estimate()
    for epoch in (0, 1):
        assert estimate.n_batches == len(list(order.iterate_epoch(epoch)))
    positions = estimate.n_batches * 5 * np.array(CAPACITY)
    assert estimate.packing_efficiency == pytest.approx(order.lengths.sum(axis=0) / positions)


def test_the_estimate_of_several_pools_is_near() -> None:
    order = make(2000, pool_size=500)
    assert order.n_pools == 4
    assert order.estimate().n_batches == pytest.approx(len(list(order.iterate_epoch())), rel=0.05)


def test_pools_of_a_large_corpus_waste_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "MIN_POOL_ITEMS", 64)
    order = PackedOrder(lengths(20_000), (64, 64), 8, seed=0)
    assert order.n_pools > 1
    empty = sum(placement.n_rows - placement.rows[-1] - 1 for placement in order.iterate_epoch())
    assert empty / (8 * len(list(order.iterate_epoch()))) < 0.01


def test_a_small_corpus_is_one_pool() -> None:
    assert make(5000, pool_size=None).n_pools == 1


def buckets(n_items: int = 230, *, seed: int = 1, shuffle: bool = True, pool_size: int | None = 60) -> BucketOrder:
    return BucketOrder(lengths(n_items), 100, seed=seed, shuffle=shuffle, pool_size=pool_size)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("n_items", "pool_size"), [(1, None), (7, 2), (230, None), (230, 60), (230, 1)])
def test_an_epoch_of_buckets_holds_every_item_once(n_items: int, pool_size: int | None, shuffle: bool) -> None:
    order = buckets(n_items, shuffle=shuffle, pool_size=pool_size)
    for epoch in (0, 3):
        assert sorted(items(list(order.iterate_epoch(epoch)))) == list(range(n_items))


def test_bucket_has_one_item_per_row_and_limited_positions() -> None:
    order = buckets()
    for placement in order.iterate_epoch():
        lengths = order.lengths[placement.items]
        assert placement.one_item_per_row
        assert placement.rows.tolist() == list(range(placement.n_rows))
        assert placement.widths == tuple(lengths.max(axis=0).tolist())
        assert placement.n_rows * max(placement.widths) <= 100
    assert not make().pool_batches(0, 0)[0].one_item_per_row


def test_items_of_a_bucket_are_of_similar_length() -> None:
    order = buckets(2000, pool_size=None)
    batches = list(order.iterate_epoch())
    assert max(np.ptp(order.lengths[batch.items].max(axis=1)) for batch in batches) <= 2
    sizes = [batch.n_rows * max(batch.widths) for batch in batches]
    assert min(sizes) > 0.3 * max(sizes)
    assert len(batches) <= 1.1 * np.ceil(order.lengths.max(axis=1).sum() / 100)


def test_item_longer_than_a_batch_is_a_batch() -> None:
    order = BucketOrder(np.array([[300], [4], [5]], dtype=np.int32), 10, seed=1)
    assert sorted(sorted(placement.items.tolist()) for placement in order.pool_batches(0, 0)) == [[0], [1, 2]]


@pytest.mark.parametrize("n_items", range(6, 12))
def test_the_last_bucket_is_not_smaller_than_the_one_before(n_items: int) -> None:
    order = BucketOrder(np.full((n_items, 1), 2, dtype=np.int32), 10, seed=1, shuffle=False)
    *_, before, last = (placement.n_rows for placement in order.pool_batches(0, 0))
    assert 0 <= last - before <= 1


def test_buckets_are_a_function_of_seed_epoch_and_pool() -> None:
    one, two = buckets(), buckets()
    assert plain(two.pool_batches(3, 1)) == plain(one.pool_batches(3, 1))
    assert plain(one.pool_batches(0, 0)) == plain(two.pool_batches(0, 0))
    assert plain(one.pool_batches(1, 0)) != plain(one.pool_batches(0, 0))
    assert plain(buckets(seed=2).pool_batches(0, 0)) != plain(one.pool_batches(0, 0))
    fixed = buckets(shuffle=False)
    assert plain(fixed.pool_batches(1, 0)) == plain(fixed.pool_batches(0, 0))


def test_buckets_resume_from_any_cursor() -> None:
    whole = list(islice(buckets().iterate(), 60))
    assert whole[-1][1].epoch > 0
    for at in (1, 7, 23, 40):
        again = list(islice(buckets().iterate(whole[at - 1][1]), 60 - at))
        assert plain([placement for placement, _ in again]) == plain([placement for placement, _ in whole[at:]])
        assert [cursor for _, cursor in again] == [cursor for _, cursor in whole[at:]]


def test_only_chosen_items_are_in_buckets_and_the_estimate_counts_them() -> None:
    chosen = np.arange(0, 230, 2)
    order = BucketOrder(lengths(230), 100, seed=1, items=chosen)
    batches = list(order.iterate_epoch())
    assert sorted(items(batches)) == chosen.tolist()
    estimate = order.estimate()
    assert estimate.n_batches == len(batches)
    for side, efficiency in enumerate(estimate.packing_efficiency):
        n_positions = sum(batch.n_rows * batch.widths[side] for batch in batches)
        assert efficiency == pytest.approx(order.lengths[chosen, side].sum() / n_positions)
