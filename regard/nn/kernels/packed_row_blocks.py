"""Blocks of packed rows in Triton: loading and storing tokens, and the stretch of a row that a block may attend to.

Segments lie one after another in a row, so the keys of a query are a stretch from where its segment begins to where it
ends, or to the query itself if attention is causal. No kernel by itself: packed_attention_long.py is made of these.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from regard.nn.kernels.triton_support import jit, tl


def segment_bounds(segment: Int[Tensor, "B T"]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return where the segment of each token begins and ends; for padding both are where the padding begins."""
    here = torch.arange(segment.shape[1], dtype=torch.int32, device=segment.device)
    changes = segment[:, 1:] != segment[:, :-1]
    first = torch.nn.functional.pad(changes, (1, 0), value=True)
    last = torch.nn.functional.pad(changes, (0, 1), value=True)
    begin = torch.where(first, here, 0).cummax(1).values
    end = torch.where(last, here + 1, len(here)).flip(1).cummin(1).values.flip(1)
    return begin, torch.where(segment > 0, end, begin)


@jit
def load_tokens(head, i, end, STRIDE: tl.constexpr, D_HEAD: tl.constexpr, BLOCK_E: tl.constexpr, BOUNDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load tokens `i` of a head; zeros from `end` on, if there may be such."""
    e = tl.arange(0, BLOCK_E)
    at = head + i[:, None] * STRIDE + e[None, :]
    if BOUNDED or BLOCK_E != D_HEAD:
        x = tl.load(at, mask=(i < end)[:, None] & (e < D_HEAD)[None, :], other=0.0)
    else:
        x = tl.load(at)
    return x


@jit
def store_tokens(  # type: ignore[no-untyped-def]
    head, i, end, x, STRIDE: tl.constexpr, D_HEAD: tl.constexpr, BLOCK_E: tl.constexpr, BOUNDED: tl.constexpr
):
    """Store tokens `i` of a head, those before `end`."""
    e = tl.arange(0, BLOCK_E)
    at = head + i[:, None] * STRIDE + e[None, :]
    if BOUNDED or BLOCK_E != D_HEAD:
        tl.store(at, x.to(head.dtype.element_ty), mask=(i < end)[:, None] & (e < D_HEAD)[None, :])
    else:
        tl.store(at, x.to(head.dtype.element_ty))


@jit
def load_block(heads, b, start, n, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a block of tokens of a row from `start`, of its `n`th head: q of all heads, then k, then v."""
    return heads.load([b, start, n, 0]).reshape(BLOCK, BLOCK_E)


@jit
def load_values(values, i, end, BOUNDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load one value for each token `i`; zeros from `end` on, if there may be such."""
    return tl.load(values + i, mask=i < end, other=0) if BOUNDED else tl.load(values + i)


@jit
def key_bounds(begin, end, i, n_tokens, CAUSAL: tl.constexpr, BOUNDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return from which key to which each of the queries `i` attends."""
    left, right = load_values(begin, i, n_tokens, BOUNDED), load_values(end, i, n_tokens, BOUNDED)
    if CAUSAL:
        right = tl.minimum(right, i + 1)
    return left, right


@jit
def mask_columns(left, right, start, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return which of a block of columns from `start` lie within each row's bounds."""
    j = start + tl.arange(0, BLOCK)[None, :]
    return (j >= left[:, None]) & (j < right[:, None])


@jit
def key_range(begin, end, first, n_tokens, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the keys of the queries from `first`: start, up to where all of them need no mask, and stop."""
    last = tl.minimum(first + BLOCK_M, n_tokens) - 1
    start, stop = tl.load(begin + first), tl.load(end + last)
    full = stop
    if CAUSAL:
        full, stop = tl.minimum(first + 1, stop), tl.minimum(last + 1, stop)
    one_segment = start == tl.load(begin + last)
    return start, start + tl.where(one_segment, (full - start) // BLOCK_N * BLOCK_N, 0), stop


@jit
def query_range(begin, end, first, n_tokens, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the queries that attend to the keys from `first`: start, from and up to where none needs a mask, stop."""
    last = tl.minimum(first + BLOCK_N, n_tokens) - 1
    start, stop = tl.load(begin + first), tl.load(end + last)
    one_segment = start == tl.load(begin + last)
    full = start
    if CAUSAL:
        start, full = first, last
    start = start // 4 * 4  # lse and delta are loaded by 16 bytes
    full = start + (full - start + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    n_full = tl.where(one_segment, tl.maximum(stop - full, 0) // BLOCK_M * BLOCK_M, 0)
    return start, full, full + n_full, stop
