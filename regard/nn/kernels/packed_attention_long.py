"""Packed self-attention of long rows, block by block, in Triton, for half precision on Hopper and Blackwell.

FlashAttention-2 (Dao 2023) for rows of several segments (packed_attention_short.py has the rows that fit on the chip).
What a block may attend to is one stretch of the row (packed_row_blocks.py): the rest is never read, and only where a
segment or the past ends is there a mask. Backward recomputes p, once by queries for dq and delta, once by keys for dk
and dv, and writes all three into the gradient of the projection. Letters are the paper's: s scores, p softmax,
m running maximum, l running sum, o output; lse and m are to base 2.

    causal, by blocks:       key 0 1 2 3
                     query 0     /             /  with a mask
                           1     # /           #  without
                           2     # # /
                           3     # # # /
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.packed_row_blocks import (
    key_bounds,
    key_range,
    load_block,
    load_tokens,
    load_values,
    mask_columns,
    query_range,
    segment_bounds,
    store_tokens,
)
from regard.nn.kernels.triton_support import (
    HALF_PRECISION,
    LOG2_E,
    NEGATIVE,
    TensorDescriptor,
    jit,
    runs_on,
    tile_size,
    tl,
)
from regard.nn.mask import AttentionMask

MIN_TOKENS, MAX_TOKENS, MAX_D_HEAD = 129, 4096, 128
"""Lengths of rows, and the widest head, that are taken: longer rows were not tried."""

CAPABILITIES = (9, 10)
"""Hopper and Blackwell: blocks are loaded by the tensor memory accelerator, and matrix units read them from there."""

LIMITS = f"rows of {MIN_TOKENS} to {MAX_TOKENS} tokens, heads of at most {MAX_D_HEAD}, Hopper or Blackwell"


class Blocks(NamedTuple):
    """Launch configuration: queries and keys of a block, warps, pipeline stages, and registers of a thread at most."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int
    maxnreg: int | None = None


FORWARD = {64: Blocks(64, 64, 4, 3, 128), 128: Blocks(128, 128, 8, 2)}
BACKWARD_DQ = {64: Blocks(64, 64, 4, 3, 128), 128: Blocks(128, 64, 8, 2)}
BACKWARD_DKV = {64: Blocks(64, 64, 4, 3, 168), 128: Blocks(64, 128, 8, 2)}
"""For heads up to so wide: for 64 the fastest on an H200 (bench/attention.py), for 128 what leaves nothing spilled."""


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernels run on this device in this precision, within their limits."""
    return dtype in HALF_PRECISION and runs_on(device, CAPABILITIES)


def supports(qkv: Tensor, mask: AttentionMask, n_heads: int) -> bool:
    """Return True if the kernels take rows and heads like these."""
    d_head = qkv.shape[2] // (3 * n_heads)
    fits = MIN_TOKENS <= qkv.shape[1] <= MAX_TOKENS and d_head <= MAX_D_HEAD and d_head % 8 == 0
    return fits and available(qkv.device, qkv.dtype)


def packed_self_attention(qkv: Float[Tensor, "B T HEEE"], mask: AttentionMask, n_heads: int) -> Float[Tensor, "B T HE"]:
    """Return o of all heads side by side, from q, k and v of all heads side by side."""
    assert mask.layout is not None, "packed self-attention needs segments and positions"
    begin, end = (each.contiguous() for each in segment_bounds(mask.layout.positions.segment))
    o: Tensor = _attention(qkv, begin, end, n_heads, mask.layout.causal)[0]
    return o


INPUTS = "Tensor qkv, Tensor begin, Tensor end, int n_heads, bool causal"


@torch.library.custom_op("regard::packed_attention_long", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)")
def _attention(qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return forward(qkv, begin, end, n_heads, causal)


@torch.library.custom_op(
    "regard::packed_attention_long_backward",
    mutates_args=(),
    schema=f"(Tensor do, Tensor o, Tensor lse, {INPUTS}) -> Tensor",
)
def _attention_backward(
    do: Tensor, o: Tensor, lse: Tensor, qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool
) -> Tensor:
    return backward(do.contiguous(), o, lse, qkv, begin, end, n_heads, causal)


@_attention.register_fake
def _(qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _empty_outputs(qkv, n_heads)


@_attention_backward.register_fake
def _(
    do: Tensor, o: Tensor, lse: Tensor, qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool
) -> Tensor:
    return torch.empty_like(qkv)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_heads, ctx.causal = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, do: Tensor, _: None) -> tuple[Tensor, None, None, None, None]:
    return _attention_backward(do, *ctx.saved_tensors, ctx.n_heads, ctx.causal), None, None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)


def _empty_outputs(qkv: Tensor, n_heads: int) -> tuple[Float[Tensor, "B T HE"], Float[Tensor, "B H T4"]]:
    """Allocate o and lse, whose rows are padded to a multiple of four: descriptors want strides of 16 bytes."""
    n_rows, n_tokens, width = qkv.shape
    o = qkv.new_empty(n_rows, n_tokens, width // 3)
    return o, qkv.new_empty(n_rows, n_heads, -(-n_tokens // 4) * 4, dtype=torch.float32)


def forward(
    qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor]:
    """Launch the forward kernel; return o and lse."""
    o, lse = _empty_outputs(qkv, n_heads)
    grid, sizes, options = _launch(qkv, n_heads, FORWARD, "BLOCK_M", blocks)
    heads = _describe_heads(qkv, options, options["BLOCK_N"])
    _forward_kernel[grid](qkv, heads, begin, end, o, lse, *sizes, CAUSAL=causal, **options)
    return o, lse


def backward(
    do: Tensor, o: Tensor, lse: Tensor, qkv: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool,
    dq_blocks: Blocks | None = None, dkv_blocks: Blocks | None = None,
) -> Tensor:  # fmt: skip
    """Launch both backward kernels; return the gradient of the projection."""
    d_qkv, delta = torch.empty_like(qkv), torch.empty_like(lse)
    grid, sizes, options = _launch(qkv, n_heads, BACKWARD_DQ, "BLOCK_M", dq_blocks)
    heads = _describe_heads(qkv, options, options["BLOCK_N"])
    _dq_kernel[grid](do, qkv, heads, begin, end, o, lse, delta, d_qkv, *sizes, CAUSAL=causal, **options)
    grid, sizes, options = _launch(qkv, n_heads, BACKWARD_DKV, "BLOCK_N", dkv_blocks)
    described = (
        *(_describe_heads(x, options, options["BLOCK_M"]) for x in (qkv, do)),
        *(_describe_values(x, options["BLOCK_M"], sizes[0]) for x in (lse, delta)),
    )
    _dkv_kernel[grid](qkv, begin, end, *described, d_qkv, *sizes, CAUSAL=causal, **options)
    return d_qkv


def _describe_heads(rows: Float[Tensor, "B T NE"], options: dict[str, Any], n_tokens: int) -> Any:
    """Return a descriptor by which a kernel loads so many tokens of a head, zeros where the row or head has ended."""
    by_head = rows.unflatten(2, (-1, options["D_HEAD"]))
    return TensorDescriptor.from_tensor(by_head, [1, n_tokens, 1, options["BLOCK_E"]])


def _describe_values(values: Float[Tensor, "B H T4"], block: int, n_tokens: int) -> Any:
    """Return the same for one value a token."""
    return TensorDescriptor.from_tensor(values.flatten(0, 1)[:, :n_tokens], [1, block])


def _launch(
    qkv: Tensor, n_heads: int, table: dict[int, Blocks], own: str, blocks: Blocks | None
) -> tuple[tuple[int, int, int], tuple[int, float], dict[str, Any]]:
    """Return a kernel's grid, one program for each block of its `own`, the sizes it is told, and its options."""
    n_rows, n_tokens, d_head = qkv.shape[0], qkv.shape[1], qkv.shape[2] // (3 * n_heads)
    blocks = blocks or table[64 if d_head <= 64 else 128]
    block: int = getattr(blocks, own)
    sizes = {"H": n_heads, "D_HEAD": d_head, "BLOCK_E": tile_size(d_head), "EVEN": n_tokens % block == 0}
    return (-(-n_tokens // block), n_heads, n_rows), (n_tokens, d_head**-0.5), {**sizes, **blocks._asdict()}


@jit
def _forward_inner(  # type: ignore[no-untyped-def]
    acc, l, m, q, heads, b, h, left, right, start, stop, scale_log2,
    MASKED: tl.constexpr, H: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Go through a stretch of keys with an online softmax."""
    for j in range(start, stop, BLOCK_N):
        k = load_block(heads, b, j, H + h, BLOCK_N, BLOCK_E)
        s = tl.dot(q, tl.trans(k))
        if MASKED:
            s = tl.where(mask_columns(left, right, j, BLOCK_N), s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1) * scale_log2)
        p = tl.exp2(s * scale_log2 - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        v = load_block(heads, b, j, 2 * H + h, BLOCK_N, BLOCK_E)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    return acc, l, m


@jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    qkv, heads, begin, end, o_out, lse_out, n_tokens, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, D_HEAD: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute o and lse of one block of queries; blocks with the most keys go first."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    h, b = tl.program_id(1), tl.program_id(2)
    row, values = b.to(tl.int64) * n_tokens, (b.to(tl.int64) * H + h) * (n_tokens + 3 & -4)
    i = first + tl.arange(0, BLOCK_M)
    q_at = qkv + row * (3 * H * D_HEAD) + h * D_HEAD
    q = load_tokens(q_at, i, n_tokens, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    left, right = key_bounds(begin + row, end + row, i, n_tokens, CAUSAL, not EVEN)
    start, middle, stop = key_range(begin + row, end + row, first, n_tokens, CAUSAL, BLOCK_M, BLOCK_N)
    scale_log2 = scale * LOG2_E
    acc, l = tl.zeros((BLOCK_M, BLOCK_E), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    m = tl.full((BLOCK_M,), NEGATIVE, tl.float32)
    acc, l, m = _forward_inner(
        acc, l, m, q, heads, b, h, left, right, start, middle, scale_log2, False, H, BLOCK_E, BLOCK_N
    )
    acc, l, m = _forward_inner(
        acc, l, m, q, heads, b, h, left, right, middle, stop, scale_log2, True, H, BLOCK_E, BLOCK_N
    )
    l = tl.where(l > 0.0, l, 1.0)
    o_at = o_out + row * (H * D_HEAD) + h * D_HEAD
    store_tokens(o_at, i, n_tokens, acc / l[:, None], H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    tl.store(lse_out + values + i, m + tl.log2(l), mask=i < n_tokens)


@jit
def _dq_inner(  # type: ignore[no-untyped-def]
    dq, q, do, lse, delta, heads, b, h, left, right, start, stop, scale_log2,
    MASKED: tl.constexpr, H: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add to dq of a block of queries what comes from a stretch of keys."""
    for j in range(start, stop, BLOCK_N):
        k, v = load_block(heads, b, j, H + h, BLOCK_N, BLOCK_E), load_block(heads, b, j, 2 * H + h, BLOCK_N, BLOCK_E)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale_log2 - lse[:, None])
        if MASKED:
            p = tl.where(mask_columns(left, right, j, BLOCK_N), p, 0.0)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@jit
def _dq_kernel(  # type: ignore[no-untyped-def]
    do_in, qkv, heads, begin, end, o_in, lse_in, delta_out, d_qkv, n_tokens, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, D_HEAD: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute ``ds = p (dp - delta)`` and ``dq = ds k`` of one block of queries; ``delta = sum(o do)`` is kept."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    h, b = tl.program_id(1), tl.program_id(2)
    row, values = b.to(tl.int64) * n_tokens, (b.to(tl.int64) * H + h) * (n_tokens + 3 & -4)
    i = first + tl.arange(0, BLOCK_M)
    o_at, q_at = row * (H * D_HEAD) + h * D_HEAD, row * (3 * H * D_HEAD) + h * D_HEAD
    o = load_tokens(o_in + o_at, i, n_tokens, H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    do = load_tokens(do_in + o_at, i, n_tokens, H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta_out + values + i, delta, mask=i < n_tokens)
    q = load_tokens(qkv + q_at, i, n_tokens, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    lse = load_values(lse_in + values, i, n_tokens, not EVEN)
    left, right = key_bounds(begin + row, end + row, i, n_tokens, CAUSAL, not EVEN)
    start, middle, stop = key_range(begin + row, end + row, first, n_tokens, CAUSAL, BLOCK_M, BLOCK_N)
    scale_log2 = scale * LOG2_E
    dq = tl.zeros((BLOCK_M, BLOCK_E), tl.float32)
    dq = _dq_inner(
        dq, q, do, lse, delta, heads, b, h, left, right, start, middle, scale_log2, False, H, BLOCK_E, BLOCK_N
    )
    dq = _dq_inner(dq, q, do, lse, delta, heads, b, h, left, right, middle, stop, scale_log2, True, H, BLOCK_E, BLOCK_N)
    store_tokens(d_qkv + q_at, i, n_tokens, dq * scale, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)


@jit
def _dkv_inner(  # type: ignore[no-untyped-def]
    dk, dv, k, v, heads, do_heads, lse_in, delta_in, b, h, left, right, start, stop, gap_at, gap, scale_log2,
    MASKED: tl.constexpr, H: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Add to dk and dv of a block of keys what comes from a stretch of queries, without the `gap` at `gap_at`."""
    for step in range(start, stop, BLOCK_M):
        i = step
        if MASKED:
            i = tl.where(step < gap_at, step, step + gap)
        q, do = load_block(heads, b, i, h, BLOCK_M, BLOCK_E), load_block(do_heads, b, i, h, BLOCK_M, BLOCK_E)
        lse = lse_in.load([b * H + h, i]).reshape(BLOCK_M)
        p_t = tl.exp2(tl.dot(k, tl.trans(q)) * scale_log2 - lse[None, :])
        if MASKED:
            p_t = tl.where(mask_columns(left, right, i, BLOCK_M), p_t, 0.0)
        dv = tl.dot(p_t.to(do.dtype), do, dv)
        dp_t = tl.dot(v, tl.trans(do))
        ds_t = p_t * (dp_t - delta_in.load([b * H + h, i]).reshape(BLOCK_M)[None, :])
        dk = tl.dot(ds_t.to(q.dtype), q, dk)
    return dk, dv


@jit
def _dkv_kernel(  # type: ignore[no-untyped-def]
    qkv, begin, end, heads, do_heads, lse_in, delta_in, d_qkv, n_tokens, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, D_HEAD: tl.constexpr, BLOCK_E: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute ``dv = p^T do`` and ``dk = ds^T q`` of one block of keys, with p and ds transposed: keys are rows."""
    first, h, b = tl.program_id(0) * BLOCK_N, tl.program_id(1), tl.program_id(2)
    j, row = first + tl.arange(0, BLOCK_N), b.to(tl.int64) * n_tokens
    k_at = row * (3 * H * D_HEAD) + (H + h) * D_HEAD
    k = load_tokens(qkv + k_at, j, n_tokens, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    v = load_tokens(qkv + k_at + H * D_HEAD, j, n_tokens, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    left = load_values(begin + row, j, n_tokens, not EVEN)
    right = load_values(end + row, j, n_tokens, not EVEN)
    if CAUSAL:
        left = j
    start, full, full_end, stop = query_range(begin + row, end + row, first, n_tokens, CAUSAL, BLOCK_M, BLOCK_N)
    gap = full_end - full
    scale_log2 = scale * LOG2_E
    dk, dv = tl.zeros((BLOCK_N, BLOCK_E), tl.float32), tl.zeros((BLOCK_N, BLOCK_E), tl.float32)
    dk, dv = _dkv_inner(
        dk, dv, k, v, heads, do_heads, lse_in, delta_in, b, h, left, right,
        start, stop - gap, full, gap, scale_log2, True, H, BLOCK_E, BLOCK_M,
    )  # fmt: skip
    dk, dv = _dkv_inner(
        dk, dv, k, v, heads, do_heads, lse_in, delta_in, b, h, left, right,
        full, full_end, full, 0, scale_log2, False, H, BLOCK_E, BLOCK_M,
    )  # fmt: skip
    store_tokens(d_qkv + k_at, j, n_tokens, dk * scale, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
    store_tokens(d_qkv + k_at + H * D_HEAD, j, n_tokens, dv, 3 * H * D_HEAD, D_HEAD, BLOCK_E, not EVEN)
