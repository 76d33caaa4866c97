"""Jacobian-vector products of attention, many directions at once, in one Triton kernel, for float16 on a CUDA device.

For each direction and head the tangents of the scores never leave the chip: of a layer's directions only dq, dk and dv
are read and do is written. Here d is a forward tangent, not a gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.triton_support import jit, runs_on, tile_size, tl

BLOCK = 64
"""Queries, and keys, that a program works on at once."""

MAX_D_HEAD = 128
"""A head whose blocks still fit on the chip."""

LIMITS = f"heads of at most {MAX_D_HEAD}"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype == torch.float16 and runs_on(device)


def supports(
    dq: Tensor, dk: Tensor | None, dv: Tensor | None, q: Tensor, k: Tensor, v: Tensor, p: Tensor, o: Tensor
) -> bool:
    """Return True if the kernel takes directions like these."""
    fits = max(q.shape[-1], v.shape[-1]) <= MAX_D_HEAD and all(x.is_contiguous() for x in (q, k, v, p, o))
    return fits and available(dq.device, dq.dtype)


def attention_jvp(
    dq: Float[Tensor, "Q N HE"],
    dk: Float[Tensor, "K N HE"] | None,
    dv: Float[Tensor, "K N HE2"] | None,
    q: Float[Tensor, "H Q E"],
    k: Float[Tensor, "H K E"],
    v: Float[Tensor, "H K E2"],
    p: Float[Tensor, "H Q K"],
    o: Float[Tensor, "H Q E2"],
) -> Float[Tensor, "Q N HE2"]:
    """Return ``do = (p ds) v - (sum_k p ds) o + p dv`` with ``ds = (dq k^T + q dk^T) / sqrt(E)`` for N directions.

    dk and dv that are None are zero.
    """
    (n_heads, n_queries, d_key), (_, n_keys, d_value) = q.shape, v.shape
    do = dq.new_empty(n_queries, dq.shape[1], n_heads * d_value)
    moving = {"HAS_DK": dk is not None, "HAS_DV": dv is not None}
    dk, dv = (dq if x is None else x for x in (dk, dv))
    strides = [stride for x in (dq, dk, dv, do) for stride in x.stride()[:2]]
    grid = (dq.shape[1], n_heads, -(-n_queries // BLOCK))
    sizes = (n_queries, n_keys, d_key, d_value, d_key**-0.5)
    blocks = {"BLOCK_M": BLOCK, "BLOCK_N": BLOCK, "BLOCK_E": tile_size(d_key), "BLOCK_F": tile_size(d_value)}
    _jvp_kernel[grid](dq, dk, dv, do, q, k, v, p, o, *strides, *sizes, **blocks, **moving)
    return do


@jit
def _jvp_kernel(  # type: ignore[no-untyped-def]
    dq_in, dk_in, dv_in, do_out,
    q_in, k_in, v_in, p_in, o_in,
    dq_token, dq_n, dk_token, dk_n, dv_token, dv_n, do_token, do_n,
    n_queries, n_keys, d_key, d_value, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_F: tl.constexpr,
    HAS_DK: tl.constexpr, HAS_DV: tl.constexpr,
):  # fmt: skip
    """Compute one direction of one head for one block of queries, going through all keys."""
    n, h, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    i, e, f = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_F)
    rows, in_key, in_value = i[:, None] < n_queries, e[None, :] < d_key, f[None, :] < d_value
    dq = tl.load(dq_in + n * dq_n + i[:, None] * dq_token + h * d_key + e[None, :], mask=rows & in_key, other=0.0)
    q = tl.load(q_in + (h * n_queries + i[:, None]) * d_key + e[None, :], mask=rows & in_key, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_F), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, n_keys, BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        keys = j[:, None] < n_keys
        k = tl.load(k_in + (h * n_keys + j[:, None]) * d_key + e[None, :], mask=keys & in_key, other=0.0)
        v = tl.load(v_in + (h * n_keys + j[:, None]) * d_value + f[None, :], mask=keys & in_value, other=0.0)
        p_at = p_in + (h * n_queries + i[:, None]) * n_keys + j[None, :]
        p = tl.load(p_at, mask=rows & (j[None, :] < n_keys), other=0.0)
        ds = tl.dot(dq, tl.trans(k))
        if HAS_DK:
            dk_at = dk_in + n * dk_n + j[:, None] * dk_token + h * d_key + e[None, :]
            dk = tl.load(dk_at, mask=keys & in_key, other=0.0)
            ds += tl.dot(q, tl.trans(dk))
        p_ds = ds * p * scale
        total += tl.sum(p_ds, axis=1)
        acc += tl.dot(p_ds.to(v.dtype), v)
        if HAS_DV:
            dv_at = dv_in + n * dv_n + j[:, None] * dv_token + h * d_value + f[None, :]
            dv = tl.load(dv_at, mask=keys & in_value, other=0.0)
            acc += tl.dot(p, dv)
    o = tl.load(o_in + (h * n_queries + i[:, None]) * d_value + f[None, :], mask=rows & in_value, other=0.0)
    acc -= total[:, None] * o
    do_at = do_out + n * do_n + i[:, None] * do_token + h * d_value + f[None, :]
    tl.store(do_at, acc.to(q.dtype), mask=rows & in_value)
