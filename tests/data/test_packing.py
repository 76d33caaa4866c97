"""Packing: every item in one row, no row beyond its capacity, and high packing efficiency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from regard.data import packing
from regard.data.packing import Packing, concatenate_ranges, pack


def pairs(n: int, seed: int = 0, ratio: float = 1.0) -> np.ndarray:
    """Return lengths like those of news translation, <eos> included."""
    generator = np.random.default_rng(seed)
    target = np.clip(generator.lognormal(3.1, 0.55, n), 4, 100)
    source = np.clip(ratio * target * generator.uniform(0.85, 1.15, n), 2, 100)
    return np.stack([source, target], axis=1).astype(np.int32) + 1


def loads(lengths: np.ndarray, packed: Packing) -> np.ndarray:
    """Return the positions used in each row, per side."""
    assert packed.rows.shape == (len(lengths),)
    return np.stack([np.bincount(packed.rows, side, packed.n_rows) for side in lengths.T], axis=1)


def packing_efficiency(lengths: np.ndarray, packed: Packing, capacity: Sequence[int]) -> np.ndarray:
    """Return the packing efficiency, per side."""
    return lengths.sum(axis=0) / (packed.n_rows * np.array(capacity))


@pytest.mark.parametrize("n_sides", [1, 2, 3])
@pytest.mark.parametrize("n_items", [1, 2, 50, 700])
def test_rows_are_within_capacity_and_not_empty(n_items: int, n_sides: int) -> None:
    capacity = (40, 64, 50)[:n_sides]
    generator = np.random.default_rng(n_items)
    lengths = np.stack([generator.integers(1, most + 1, n_items) for most in capacity], axis=1)
    packed = pack(lengths, capacity)
    assert (loads(lengths, packed) <= capacity).all()
    assert set(packed.rows.tolist()) == set(range(packed.n_rows))


def test_exactly_fitting_items_leave_no_padding() -> None:
    lengths = np.array([[7], [3], [5], [5], [10], [4], [6]])
    packed = pack(lengths, [10])
    assert packed.n_rows == 4
    assert packing_efficiency(lengths, packed, [10]) == [1.0]


def test_news_pairs_fill_both_sides() -> None:
    lengths = pairs(8000)
    packed = pack(lengths, (128, 128))
    assert min(packing_efficiency(lengths, packed, (128, 128))) > 0.985


@pytest.mark.parametrize("ratio", [0.6, 1.6])
def test_the_longer_side_is_filled(ratio: float) -> None:
    lengths = pairs(4000, ratio=ratio)
    assert max(packing_efficiency(lengths, pack(lengths, (128, 128)), (128, 128))) > 0.985


def test_sides_of_unequal_capacity_weigh_the_same() -> None:
    lengths = pairs(4000) * [3, 1]
    capacity = (384, 128)
    assert min(packing_efficiency(lengths, pack(lengths, capacity), capacity)) > 0.97


def test_one_side_is_filled_almost_perfectly() -> None:
    lengths = np.random.default_rng(3).integers(1, 257, (3000, 1))
    assert packing_efficiency(lengths, pack(lengths, [256]), [256])[0] > 0.99


def test_the_same_lengths_give_the_same_rows() -> None:
    lengths = pairs(500)
    assert (pack(lengths, (128, 128)).rows == pack(lengths.copy(), (128, 128)).rows).all()


def test_the_number_of_rows_does_not_depend_on_the_order_of_the_items() -> None:
    lengths = pairs(500)
    assert pack(lengths, (128, 128)).n_rows == pack(lengths[::-1], (128, 128)).n_rows


def test_too_many_kinds_are_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_DISTINCT_LENGTHS", 100)
    lengths = pairs(3001)
    packed = pack(lengths, (128, 128))
    assert (loads(lengths, packed) <= 128).all()
    assert set(packed.rows.tolist()) == set(range(packed.n_rows))
    assert min(packing_efficiency(lengths, packed, (128, 128))) > 0.9


def test_no_items() -> None:
    packed = pack(np.zeros((0, 2), dtype=np.int32), (8, 8))
    assert packed.n_rows == 0
    assert packed.rows.shape == (0,)


def test_items_without_tokens_share_a_row() -> None:
    packed = pack(np.zeros((5, 2), dtype=np.int32), (8, 8))
    assert packed.n_rows == 1


def test_an_item_longer_than_a_row_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"items of length \(9, 3\) for rows of \(8, 8\)"):
        pack(np.array([[9, 1], [2, 3]]), (8, 8))


def test_concatenated_ranges() -> None:
    assert concatenate_ranges(np.array([5, 0, 9]), np.array([3, 0, 2])).tolist() == [5, 6, 7, 9, 10]
    assert concatenate_ranges(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
