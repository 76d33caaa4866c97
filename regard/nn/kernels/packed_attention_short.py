"""Packed self-attention of short rows, one Triton kernel each way, for half precision on a CUDA device.

A row of up to 128 tokens fits on the chip, so one program computes a whole head of a row: it reads q, k and v where the
projection put them, and writes o and the log-sum-exp of each query's scores. Backward recomputes p from that and writes
dq, dk and dv into the gradient of the projection, so nothing is concatenated. Letters as in FlashAttention-2
(Dao 2023): s scores, p softmax, m maximum, l sum, o output.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, LOG2_E, NEGATIVE, jit, runs_on, tile_size, tl
from regard.nn.mask import AttentionMask

MAX_TOKENS, MAX_D_HEAD = 128, 64
"""The longest row and the widest head that fit on the chip."""

LIMITS = f"rows of at most {MAX_TOKENS} tokens, heads of at most {MAX_D_HEAD}"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in HALF_PRECISION and runs_on(device)


def supports(qkv: Tensor, mask: AttentionMask, n_heads: int) -> bool:
    """Return True if the kernel takes rows and heads like these."""
    d_head = qkv.shape[2] // (3 * n_heads)
    fits = qkv.shape[1] <= MAX_TOKENS and d_head <= MAX_D_HEAD and d_head % 8 == 0
    return fits and available(qkv.device, qkv.dtype)


def packed_self_attention(qkv: Float[Tensor, "B T HEEE"], mask: AttentionMask, n_heads: int) -> Float[Tensor, "B T HE"]:
    """Return o of all heads side by side, from q, k and v of all heads side by side."""
    assert mask.layout is not None, "packed self-attention needs segments and positions"
    segment, position = (each.contiguous() for each in mask.layout.positions)
    o: Tensor = _attention(qkv, segment, position, n_heads, mask.layout.causal)[0]
    return o


INPUTS = "Tensor qkv, Tensor segment, Tensor position, int n_heads, bool causal"


@torch.library.custom_op("regard::packed_attention_short", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)")
def _attention(qkv: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    o, lse = _empty_outputs(qkv, n_heads)
    sizes, blocks = _sizes(qkv, n_heads), _blocks(qkv, n_heads)
    _forward_kernel[len(qkv), n_heads](qkv, segment, position, o, lse, *sizes, CAUSAL=causal, **blocks)
    return o, lse


@torch.library.custom_op(
    "regard::packed_attention_short_backward", mutates_args=(), schema=f"(Tensor do, Tensor lse, {INPUTS}) -> Tensor"
)
def _attention_backward(
    do: Tensor, lse: Tensor, qkv: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool
) -> Tensor:
    d_qkv, tensors = torch.empty_like(qkv), (do.contiguous(), lse, qkv, segment, position)
    sizes, blocks = _sizes(qkv, n_heads), _blocks(qkv, n_heads)
    _backward_kernel[len(qkv), n_heads](*tensors, d_qkv, *sizes, CAUSAL=causal, **blocks)
    return d_qkv


@_attention.register_fake
def _(qkv: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _empty_outputs(qkv, n_heads)


@_attention_backward.register_fake
def _(do: Tensor, lse: Tensor, qkv: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool) -> Tensor:
    return torch.empty_like(qkv)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_heads, ctx.causal = inputs
    ctx.save_for_backward(output[1], *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, do: Tensor, _: None) -> tuple[Tensor, None, None, None, None]:
    return _attention_backward(do, *ctx.saved_tensors, ctx.n_heads, ctx.causal), None, None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)


def _empty_outputs(qkv: Tensor, n_heads: int) -> tuple[Float[Tensor, "B T HE"], Float[Tensor, "B H T"]]:
    """Allocate o and lse, which is to base 2."""
    n_rows, n_tokens, width = qkv.shape
    o = qkv.new_empty(n_rows, n_tokens, width // 3)
    return o, qkv.new_empty(n_rows, n_heads, n_tokens, dtype=torch.float32)


def _sizes(qkv: Tensor, n_heads: int) -> tuple[int, int, float]:
    d_head = qkv.shape[2] // (3 * n_heads)
    return qkv.shape[1], d_head, d_head**-0.5


def _blocks(qkv: Tensor, n_heads: int) -> dict[str, int]:
    n_tokens, d_head, _ = _sizes(qkv, n_heads)
    warps = 8 if n_tokens > 64 else 4
    return {"BLOCK_T": tile_size(n_tokens), "BLOCK_E": tile_size(d_head), "H": n_heads, "num_warps": warps}


@jit
def _make_mask(segment, position, b, n_tokens, BLOCK_T: tl.constexpr, CAUSAL: tl.constexpr, TRANSPOSED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return which keys each query may attend to: (queries, keys), or (keys, queries) if transposed."""
    t = tl.arange(0, BLOCK_T)
    own = tl.load(segment + b * n_tokens + t, mask=t < n_tokens, other=0)
    mask = (own[:, None] == own[None, :]) & (own > 0)[:, None]
    if CAUSAL:
        at = tl.load(position + b * n_tokens + t, mask=t < n_tokens, other=0)
        mask = mask & ((at[:, None] <= at[None, :]) if TRANSPOSED else (at[None, :] <= at[:, None]))
    return mask


@jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    qkv, segment, position, o_out, lse_out, n_tokens, d_head, scale,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, H: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute one head of one row: ``o = softmax(scale q k^T) v``, zeros where a query has nothing to attend to."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, e = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_E)[None, :]
    inside = (i < n_tokens) & (e < d_head)
    q_at = qkv + (b * n_tokens + i) * (3 * H * d_head) + h * d_head + e
    q = tl.load(q_at, mask=inside, other=0.0)
    k = tl.load(q_at + H * d_head, mask=inside, other=0.0)
    v = tl.load(q_at + 2 * H * d_head, mask=inside, other=0.0)
    mask = _make_mask(segment, position, b, n_tokens, BLOCK_T, CAUSAL, False)
    s = tl.where(mask, tl.dot(q, tl.trans(k)) * (scale * LOG2_E), float("-inf"))
    m = tl.maximum(tl.max(s, 1), NEGATIVE)
    p = tl.exp2(s - m[:, None])
    l = tl.sum(p, 1)
    l = tl.where(l > 0.0, l, 1.0)
    o = tl.dot(p.to(v.dtype), v) / l[:, None]
    tl.store(o_out + (b * n_tokens + i) * (H * d_head) + h * d_head + e, o.to(v.dtype), mask=inside)
    t = tl.arange(0, BLOCK_T)
    tl.store(lse_out + (b * H + h) * n_tokens + t, m + tl.log2(l), mask=t < n_tokens)


@jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    do_in, lse_in, qkv, segment, position, d_qkv, n_tokens, d_head, scale,
    BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr, H: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Compute dq, dk and dv of one head of one row.

    ``dv = p^T do``, ``dp = do v^T``, ``ds = p (dp - delta)`` with ``delta = sum_k p dp``, ``dk = ds^T q``,
    ``dq = ds k``. p and ds are held transposed, keys as rows, which two of the products take as they are.
    """
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, e = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_E)[None, :]
    inside = (i < n_tokens) & (e < d_head)
    q_at = (b * n_tokens + i) * (3 * H * d_head) + h * d_head + e
    q = tl.load(qkv + q_at, mask=inside, other=0.0)
    k = tl.load(qkv + q_at + H * d_head, mask=inside, other=0.0)
    v = tl.load(qkv + q_at + 2 * H * d_head, mask=inside, other=0.0)
    do = tl.load(do_in + (b * n_tokens + i) * (H * d_head) + h * d_head + e, mask=inside, other=0.0)
    t = tl.arange(0, BLOCK_T)
    lse = tl.load(lse_in + (b * H + h) * n_tokens + t, mask=t < n_tokens, other=0.0)
    s_t = tl.dot(k, tl.trans(q)) * (scale * LOG2_E)
    mask = _make_mask(segment, position, b, n_tokens, BLOCK_T, CAUSAL, True)
    p_t = tl.where(mask, tl.exp2(s_t - lse[None, :]), 0.0)
    dv = tl.dot(p_t.to(do.dtype), do)
    tl.store(d_qkv + q_at + 2 * H * d_head, dv.to(do.dtype), mask=inside)
    dp_t = tl.dot(v, tl.trans(do))
    delta = tl.sum(p_t * dp_t, 0)
    ds_t = (p_t * (dp_t - delta[None, :]) * scale).to(do.dtype)
    tl.store(d_qkv + q_at + H * d_head, tl.dot(ds_t, q).to(do.dtype), mask=inside)
    tl.store(d_qkv + q_at, tl.dot(tl.trans(ds_t), k).to(do.dtype), mask=inside)
