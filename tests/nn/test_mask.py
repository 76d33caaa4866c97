"""The one rule of masks, against a loop over all pairs of tokens."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import random_place, seen

from regard.nn import PackedPositions, make_mask


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), q=st.integers(1, 9), k=st.integers(1, 9), causal=...)
def test_visible_is_same_segment_and_not_later(seed: int, rows: int, q: int, k: int, causal: bool) -> None:
    query, key = random_place(seed, rows, q), random_place(seed + 1, rows, k)
    sight = make_mask(query, key, causal=causal)
    expected = torch.from_numpy(seen(query, key, causal=causal))
    assert sight.mask is not None
    assert sight.fully_masked is not None
    assert torch.equal(sight.mask & ~sight.fully_masked, expected[:, None])
    assert torch.equal(sight.fully_masked[:, 0, :, 0], ~expected.any(-1))
    assert sight.mask.any(-1).all(), "no softmax may run over nothing"
    assert torch.equal(sight.query_position, query.position)
    assert torch.equal(sight.key_position, key.position)


def test_the_row_drawn_in_the_docstring() -> None:
    segment = torch.tensor([[1, 1, 1, 1, 2, 2, 0, 0]])
    position = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 0]])
    place = PackedPositions(segment, position)
    sight = make_mask(place, place, causal=True)
    assert sight.mask is not None
    assert sight.fully_masked is not None
    real = (sight.mask & ~sight.fully_masked)[0, 0].int().tolist()
    assert real == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
