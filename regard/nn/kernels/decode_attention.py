"""Attention of one query in each row over a KV cache, in Triton: decoding token by token on a CUDA device.

torch's own kernels compute tiles of 64 queries, at the same price when there is only one. Here one program does a head
of a row; it skips blocks of keys that are masked as a whole, so unused capacity of a cache costs little.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, jit, runs_on, tile_size, tl

BLOCK_N, MAX_D_HEAD = 64, 128
"""Keys that are worked on together, and the widest head that is taken."""

LIMITS = f"one query in each row, without gradients, heads of at most {MAX_D_HEAD}"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in (torch.float32, *HALF_PRECISION) and runs_on(device)


def supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Return True if the kernel takes queries and a cache like these; it has no backward pass."""
    if mask is None or mask.dtype != torch.bool or torch.is_grad_enabled():
        return False
    n_rows, n_heads, n_keys, d_head = k.shape
    is_single_query = q.shape == (n_rows, n_heads, 1, d_head) and mask.shape == (n_rows, 1, 1, n_keys)
    fits = d_head <= MAX_D_HEAD and k.shape == v.shape and all(x.stride(3) == 1 for x in (q, k, v, mask))
    return is_single_query and fits and available(q.device, q.dtype)


def scaled_dot_product_attention(
    q: Float[Tensor, "B H 1 E"], k: Float[Tensor, "B H K E"], v: Tensor, mask: Bool[Tensor, "B 1 1 K"]
) -> Float[Tensor, "B H 1 E"]:
    """Return ``softmax(q k^T / sqrt(E)) v`` over the keys that each row's mask allows, at least one."""
    n_rows, n_heads, n_keys, d_head = k.shape
    o = q.new_empty(n_rows, 1, n_heads, d_head).transpose(1, 2)
    strides = [stride for x in (q, k, v) for stride in x.stride()[:3]]
    _decode_kernel[n_rows, n_heads](
        q, k, v, mask, o, *strides, mask.stride(0), n_keys, d_head, d_head**-0.5,
        BLOCK_N=BLOCK_N, BLOCK_E=tile_size(d_head),
    )  # fmt: skip
    return o


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    q_in, k_in, v_in, mask_in, o_out,
    q_row, q_head, _q_token, k_row, k_head, k_token, v_row, v_head, v_token, mask_row,
    n_keys, d_head, scale, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Compute one head of one row with an online softmax: running maximum m, running sum l, accumulator acc."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    e = tl.arange(0, BLOCK_E)
    q = tl.load(q_in + b * q_row + h * q_head + e, mask=e < d_head, other=0.0).to(tl.float32) * scale
    m, l, acc = float("-inf"), 0.0, tl.zeros([BLOCK_E], tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        mask = tl.load(mask_in + b * mask_row + j, mask=j < n_keys, other=0) != 0
        if tl.max(mask.to(tl.int32), 0) > 0:
            inside = mask[:, None] & (e < d_head)[None, :]
            k_at = k_in + b * k_row + h * k_head + j[:, None] * k_token + e[None, :]
            v_at = v_in + b * v_row + h * v_head + j[:, None] * v_token + e[None, :]
            k, v = tl.load(k_at, mask=inside, other=0.0), tl.load(v_at, mask=inside, other=0.0)
            s = tl.where(mask, tl.sum(k.to(tl.float32) * q[None, :], 1), float("-inf"))
            m_new = tl.maximum(m, tl.max(s, 0))
            alpha, p = tl.exp(m - m_new), tl.exp(s - m_new)
            l = l * alpha + tl.sum(p, 0)
            acc = acc * alpha + tl.sum(p[:, None] * v.to(tl.float32), 0)
            m = m_new
    o_at = o_out + (b * tl.num_programs(1) + h) * d_head + e
    tl.store(o_at, (acc / l).to(o_out.dtype.element_ty), mask=e < d_head)
