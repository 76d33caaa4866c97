"""Attention of one or a few queries in each row over a KV cache, in Triton: decoding token by token on a CUDA device.

torch's own kernels compute tiles of 64 queries, at the same price when there is only one. Here one program does a head
of a row; it skips blocks of keys that are masked as a whole, so unused capacity of a cache costs little. Several
queries are the beams of a sentence, which share a cache: their keys are read once, and each has a mask of its own.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, NEGATIVE, jit, runs_on, tile_size, tl

MAX_D_HEAD, MAX_QUERIES = 128, 32
"""The widest head and the most queries that are taken."""

FEW_PROGRAMS, MANY_PROGRAMS = (64, 4), (32, 1)
"""Keys that a program works on together, and its warps: a single warp waits for nobody and leaves room for others."""

MIN_PROGRAMS = 1024
"""From so many programs on they are many: enough to keep a GPU busy with one warp each."""

LIMITS = f"at most {MAX_QUERIES} queries in each row, without gradients, heads of at most {MAX_D_HEAD}"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in (torch.float32, *HALF_PRECISION) and runs_on(device)


def supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Return True if the kernel takes queries and a cache like these; it has no backward pass."""
    if mask is None or mask.dtype != torch.bool or torch.is_grad_enabled():
        return False
    n_rows, n_heads, n_keys, d_head = k.shape
    n_queries = q.shape[2]
    has_shape = q.shape == (n_rows, n_heads, n_queries, d_head) and k.shape == v.shape
    has_mask = mask.shape in ((n_rows, 1, 1, n_keys), (n_rows, 1, n_queries, n_keys))
    fits = 0 < n_queries <= MAX_QUERIES and d_head <= MAX_D_HEAD and all(x.stride(3) == 1 for x in (q, k, v, mask))
    return has_shape and has_mask and fits and available(q.device, q.dtype)


def scaled_dot_product_attention(
    q: Float[Tensor, "B H Q E"], k: Float[Tensor, "B H K E"], v: Tensor, mask: Bool[Tensor, "B 1 _ K"]
) -> Float[Tensor, "B H Q E"]:
    """Return ``softmax(q k^T / sqrt(E)) v`` over the keys that each query's mask allows, at least one."""
    n_rows, n_heads, n_keys, d_head = k.shape
    n_queries = q.shape[2]
    o = q.new_empty(n_rows, n_queries, n_heads, d_head).transpose(1, 2)
    strides = [stride for x in (q, k, v) for stride in x.stride()[:3]]
    sizes = _choose_sizes(n_rows * n_heads, n_queries, n_keys, d_head)
    if n_queries == 1:
        _decode_kernel[n_rows, n_heads](
            q, k, v, mask, o, *strides, mask.stride(0), n_keys, d_head, d_head**-0.5, **sizes,
        )  # fmt: skip
    else:
        mask_query = mask.stride(2) if mask.shape[2] > 1 else 0
        _decode_beams_kernel[n_rows, n_heads](
            q, k, v, mask, o, *strides, mask.stride(0), mask_query, n_queries, n_keys, d_head, d_head**-0.5,
            BLOCK_M=tile_size(n_queries), **sizes,
        )  # fmt: skip
    return o


def _choose_sizes(n_programs: int, n_queries: int, n_keys: int, d_head: int) -> dict[str, int]:
    """Return the tile of a program and its warps; a tile that one warp cannot hold in registers is left to four."""
    tile = tile_size(n_queries) * tile_size(d_head)
    is_one_warp = n_programs >= MIN_PROGRAMS and tile <= 16 * 64
    block_n, n_warps = MANY_PROGRAMS if is_one_warp else FEW_PROGRAMS
    return {"BLOCK_N": min(block_n, tile_size(n_keys)), "BLOCK_E": tile_size(d_head), "num_warps": n_warps}


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


@jit
def _decode_beams_kernel(  # type: ignore[no-untyped-def]
    q_in, k_in, v_in, mask_in, o_out,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, mask_row, mask_query,
    n_queries, n_keys, d_head, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Compute one head of all queries of a row; a query whose keys so far are all masked keeps a finite maximum."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, e = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_E)
    is_q = (i < n_queries)[:, None] & (e < d_head)[None, :]
    q = tl.load(q_in + b * q_row + h * q_head + i[:, None] * q_token + e[None, :], mask=is_q, other=0.0)
    m, l = tl.full([BLOCK_M], NEGATIVE, tl.float32), tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_E], tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        inside = (i < n_queries)[:, None] & (j < n_keys)[None, :]
        mask = tl.load(mask_in + b * mask_row + i[:, None] * mask_query + j[None, :], mask=inside, other=0) != 0
        needed = tl.max(mask.to(tl.int32), 0) > 0
        if tl.max(needed.to(tl.int32), 0) > 0:
            is_kv = needed[:, None] & (e < d_head)[None, :]
            k_at = k_in + b * k_row + h * k_head + j[:, None] * k_token + e[None, :]
            v_at = v_in + b * v_row + h * v_head + j[:, None] * v_token + e[None, :]
            k, v = tl.load(k_at, mask=is_kv, other=0.0), tl.load(v_at, mask=is_kv, other=0.0)
            s = tl.where(mask, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
            m_new = tl.maximum(m, tl.max(s, 1))
            alpha, p = tl.exp(m - m_new), tl.exp(s - m_new[:, None])
            l = l * alpha + tl.sum(p, 1)
            acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            m = m_new
    o_at = o_out + ((b * n_queries + i[:, None]) * tl.num_programs(1) + h) * d_head + e[None, :]
    tl.store(o_at, (acc / tl.where(l > 0, l, 1.0)[:, None]).to(o_out.dtype.element_ty), mask=is_q)
