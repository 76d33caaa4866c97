"""One masked pass over a whole text equals writing it piece by piece with a cache (SPEC 1.8)."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from reference import one_sentence, random_place
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


def piece(rows: int, start: int, end: int) -> AttentionMask:
    """The sight of tokens start..end over everything up to the end, one sentence per row."""
    whole = one_sentence(rows, end)
    now = PackedPositions(whole.segment[:, start:], whole.position[:, start:])
    return make_mask(now, whole, causal=True)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pieces", [[1] * 9, [3, 1, 5], [9], [4, 4, 1]])
@pytest.mark.parametrize("room", [1, 4, 32])
@torch.no_grad()
def test_attention_piece_by_piece_is_one_pass(scheme: str, pieces: list[int], room: int) -> None:
    module, x, cache = attention(SCHEMES[scheme]()).double(), normal(2, 9, D), KVCache(room)
    written, start = [], 0
    for n in pieces:
        written.append(module(x[:, start : start + n], piece(2, start, start + n), cache))
        start += n
        assert cache.length == start
    assert_close(torch.cat(written, 1), module(x, piece(2, 0, 9)), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pieces", [[1] * 7, [2, 5]])
@torch.no_grad()
def test_a_decoder_piece_by_piece_is_one_pass(scheme: str, pieces: list[int]) -> None:
    stack, x, source, of = decoder(scheme), normal(3, 7, D), normal(3, 6, D), random_place(7, 3, 6, n_segments=1)
    assert (of.segment == 0).any()
    memories = stack.project_kv(source, of.position)
    caches, written, start = [KVCache(capacity=2) for _ in stack], [], 0
    for n in pieces:
        sight, back = piece(3, start, start + n), make_mask(one_sentence(3, n), of)
        written.append(stack(x[:, start : start + n], memories, sight, back, caches))
        start += n
    whole = stack(x, memories, piece(3, 0, 7), make_mask(one_sentence(3, 7), of))
    assert_close(torch.cat(written, 1), whole, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1], [2], [0, 0, 1, 2, 2]])
@torch.no_grad()
def test_selected_rows_go_on_from_their_own_past(scheme: str, rows: list[int]) -> None:
    module, past, cache = attention(SCHEMES[scheme]()).double(), normal(3, 4, D), KVCache(capacity=2)
    module(past, piece(3, 0, 4), cache)
    cache.select(torch.tensor(rows))
    now = normal(len(rows), 3, D)
    got = module(now, piece(len(rows), 4, 7), cache)
    whole = module(torch.cat((past[rows], now), 1), piece(len(rows), 0, 7))
    assert_close(got, whole[:, 4:], rtol=1e-11, atol=1e-12)


def test_a_cache_gives_back_what_it_was_given() -> None:
    cache, parts = (
        KVCache(capacity=2),
        [KeyValue(torch.randn(2, H, n, 3), torch.randn(2, H, n, 5)) for n in (1, 1, 3, 6, 1)],
    )
    for i, part in enumerate(parts, 1):
        kept = cache.append(part)
        assert torch.equal(kept.key, torch.cat([p.key for p in parts[:i]], 2))
        assert torch.equal(kept.value, torch.cat([p.value for p in parts[:i]], 2))
        assert torch.equal(cache.contents().key, kept.key)


def test_selecting_from_an_empty_cache_is_nothing() -> None:
    cache = KVCache()
    cache.select(torch.tensor([0, 0, 1]))
    assert cache.length == 0
    with pytest.raises(AssertionError, match="nothing was appended yet"):
        cache.contents()
