"""Incremental decoding with a KV cache equals one causal pass over the whole text."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from reference import one_sentence, random_positions
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from regard.nn import (
    AttentionMask,
    DecoderLayer,
    DecoderStack,
    FeedForward,
    KeyValue,
    KVCache,
    MultiHeadAttention,
    NoPositions,
    PackedPositions,
    Positions,
    PreNorm,
    RelativePositions,
    RotaryPositions,
    make_mask,
)

D, H = 8, 2
SCHEMES = {
    "none": NoPositions,
    "relative": lambda: RelativePositions(4, 3),
    "relative-values": lambda: RelativePositions(4, 3, d_value=4),
    "rotary": lambda: RotaryPositions(4),
}


def attention(positions: Positions | None = None) -> MultiHeadAttention:
    return MultiHeadAttention(D, H, positions=positions)


def decoder(scheme: str) -> DecoderStack:
    def layer() -> DecoderLayer:
        return DecoderLayer(
            attention(SCHEMES[scheme]()), attention(), FeedForward(D, 16, F.relu), partial(PreNorm, D, 0.0)
        )

    return DecoderStack(layer() for _ in range(2)).double()


def causal_mask(rows: int, start: int, end: int) -> AttentionMask:
    """Return the causal mask of tokens start..end over all tokens up to the end, one sentence per row."""
    whole = one_sentence(rows, end)
    new = PackedPositions(whole.segment[:, start:], whole.position[:, start:])
    return make_mask(new, whole, causal=True)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("chunk_sizes", [[1] * 9, [3, 1, 5], [9], [4, 4, 1]])
@pytest.mark.parametrize("initial_capacity", [1, 4, 32])
@torch.no_grad()
def test_cached_attention_equals_one_pass(scheme: str, chunk_sizes: list[int], initial_capacity: int) -> None:
    module, x, cache = attention(SCHEMES[scheme]()).double(), normal(2, 9, D), KVCache(initial_capacity)
    outputs, start = [], 0
    for n in chunk_sizes:
        outputs.append(module(x[:, start : start + n], causal_mask(2, start, start + n), cache))
        start += n
        assert cache.length == start
    assert_close(torch.cat(outputs, 1), module(x, causal_mask(2, 0, 9)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("chunk_sizes", [[1] * 7, [2, 5]])
@torch.no_grad()
def test_cached_decoder_equals_one_pass(scheme: str, chunk_sizes: list[int]) -> None:
    stack, x, source, source_positions = (
        decoder(scheme),
        normal(3, 7, D),
        normal(3, 6, D),
        random_positions(7, 3, 6, n_segments=1),
    )
    assert (source_positions.segment == 0).any()
    cross_kv = stack.project_kv(source, source_positions.position)
    caches, outputs, start = [KVCache(capacity=2) for _ in stack], [], 0
    for n in chunk_sizes:
        attention_mask, cross_mask = causal_mask(3, start, start + n), make_mask(one_sentence(3, n), source_positions)
        outputs.append(stack(x[:, start : start + n], cross_kv, attention_mask, cross_mask, caches))
        start += n
    whole = stack(x, cross_kv, causal_mask(3, 0, 7), make_mask(one_sentence(3, 7), source_positions))
    assert_close(torch.cat(outputs, 1), whole, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1], [2], [0, 0, 1, 2, 2]])
@torch.no_grad()
def test_selected_rows_continue_from_their_own_cache(scheme: str, rows: list[int]) -> None:
    module, past, cache = attention(SCHEMES[scheme]()).double(), normal(3, 4, D), KVCache(capacity=2)
    module(past, causal_mask(3, 0, 4), cache)
    cache.select(torch.tensor(rows))
    new = normal(len(rows), 3, D)
    output = module(new, causal_mask(len(rows), 4, 7), cache)
    whole = module(torch.cat((past[rows], new), 1), causal_mask(len(rows), 0, 7))
    assert_close(output, whole[:, 4:], rtol=1e-11, atol=1e-12)


def test_cache_returns_everything_appended() -> None:
    cache, parts = (
        KVCache(capacity=2),
        [KeyValue(torch.randn(2, H, n, 3), torch.randn(2, H, n, 5)) for n in (1, 1, 3, 6, 1)],
    )
    for i, part in enumerate(parts, 1):
        cached = cache.append(part)
        assert torch.equal(cached.key, torch.cat([p.key for p in parts[:i]], 2))
        assert torch.equal(cached.value, torch.cat([p.value for p in parts[:i]], 2))
        assert torch.equal(cache.contents().key, cached.key)


def test_selecting_from_an_empty_cache_is_a_no_op() -> None:
    cache = KVCache()
    cache.select(torch.tensor([0, 0, 1]))
    assert cache.length == 0
    with pytest.raises(AssertionError, match="nothing was appended yet"):
        cache.contents()
