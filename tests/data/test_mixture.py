"""Mixtures of sets: how many items of each an epoch has, and which."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.corpus import KEPT_SET
from regard.data.mixture import Mixture, make_mixture, tempered_counts


def test_a_mixture_sees_large_sets_whole_and_repeats_small_ones() -> None:
    sets = {0: np.arange(90), 1: np.arange(90, 100), KEPT_SET: np.arange(100, 130)}
    mixture = make_mixture(sets, temperature=2.0, kept_set=KEPT_SET, keep_ratio=0.5, seed=3)
    assert mixture.counts == [75, 25, 100]
    again = Mixture(mixture.sets, mixture.counts, 3)
    drawn = [mixture.draw(epoch) for epoch in range(6)]
    assert all(np.array_equal(again.draw(epoch), each) for epoch, each in reversed(list(enumerate(drawn))))
    large = np.concatenate([each[each < 90] for each in drawn])
    assert set(np.bincount(large, minlength=90)) == {5}  # six epochs of 75 are five times all 90
    assert set(np.bincount(drawn[0][(drawn[0] >= 90) & (drawn[0] < 100)] - 90)) == {2, 3}
    assert not np.array_equal(drawn[0], Mixture(mixture.sets, mixture.counts, 4).draw(0))


def test_counts_by_temperature() -> None:
    assert tempered_counts([100, 900], 1.0) == [100, 900]
    assert tempered_counts([100, 900], 2.0) == [250, 750]
    assert tempered_counts([1, 10**6], 1000.0)[0] == pytest.approx(500_000, rel=0.01)
