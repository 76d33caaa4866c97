"""Attention masks against a loop over all pairs of tokens."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import random_positions, reference_mask

from regard.nn import PackedPositions, make_mask


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), q=st.integers(1, 9), k=st.integers(1, 9), causal=...)
def test_mask_is_same_segment_and_not_later(seed: int, rows: int, q: int, k: int, causal: bool) -> None:
    query, key = random_positions(seed, rows, q), random_positions(seed + 1, rows, k)
    attention_mask = make_mask(query, key, causal=causal)
    expected = torch.from_numpy(reference_mask(query, key, causal=causal))
    assert attention_mask.mask is not None
    assert attention_mask.fully_masked is not None
    assert torch.equal(attention_mask.mask & ~attention_mask.fully_masked, expected[:, None])
    assert torch.equal(attention_mask.fully_masked[:, 0, :, 0], ~expected.any(-1))
    assert attention_mask.mask.any(-1).all(), "no softmax may run over nothing"
    assert torch.equal(attention_mask.query_position, query.position)
    assert torch.equal(attention_mask.key_position, key.position)


def test_mask_of_the_documented_row() -> None:
    segment = torch.tensor([[1, 1, 1, 1, 2, 2, 0, 0]])
    position = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 0]])
    packed = PackedPositions(segment, position)
    attention_mask = make_mask(packed, packed, causal=True)
    assert attention_mask.mask is not None
    assert attention_mask.fully_masked is not None
    allowed_keys = (attention_mask.mask & ~attention_mask.fully_masked)[0, 0].int().tolist()
    assert allowed_keys == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
    ]
