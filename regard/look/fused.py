"""The derivative of attention in one kernel, for half precision on a CUDA device; look/compute/jvp.py has it in torch.

For each direction and head, how the scores move never leaves the chip: of a layer's directions only queries, keys and
values are read, and what is mixed of them is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import kernel, runnable, tl

if TYPE_CHECKING:
    from regard.look.compute.jvp import LinearisedAttention

BLOCK = 64
"""Queries, and keys, that a program works on at once."""


WIDEST = 128
"""A head whose blocks still fit on the chip."""


def usable(x: Tensor, width: int) -> bool:
    """Whether the kernel can take directions like these, of heads so wide."""
    return x.dtype == torch.float16 and width <= WIDEST and runnable(x)


def push(
    mix: LinearisedAttention, query: Float[Tensor, "Q N HE"], key: Tensor | None, value: Tensor | None
) -> Float[Tensor, "Q N HE2"]:
    """What `Mix.push` gives, for a mix whose positions do nothing inside attention."""
    (n_heads, n_queries, width), (_, n_keys, width_out) = mix.query.shape, mix.value.shape
    out = query.new_empty(n_queries, query.shape[1], n_heads * width_out)
    moving = {"KEYS_MOVE": key is not None, "VALUES_MOVE": value is not None}
    key, value = (query if part is None else part for part in (key, value))
    at_rest = (mix.query, mix.key, mix.value, mix.weights, mix.mixed)
    strides = [stride for x in (query, key, value, out) for stride in x.stride()[:2]]
    widths = [max(16, 1 << (each - 1).bit_length()) for each in (width, width_out)]
    grid = (query.shape[1], n_heads, -(-n_queries // BLOCK))
    sizes = (n_queries, n_keys, width, width_out, width**-0.5)
    _tangent[grid](query, key, value, out, *at_rest, *strides, *sizes, BLOCK=BLOCK, E=widths[0], F=widths[1], **moving)
    return out


@kernel
def _tangent(  # type: ignore[no-untyped-def]
    dq, dk, dv, out,
    q, k, v, a, z,
    dq_token, dq_n, dk_token, dk_n, dv_token, dv_n, out_token, out_n,
    n_queries, n_keys, width, width_out, scale,
    BLOCK: tl.constexpr, E: tl.constexpr, F: tl.constexpr, KEYS_MOVE: tl.constexpr, VALUES_MOVE: tl.constexpr,
):  # fmt: skip
    """One direction, one head, one block of queries: all keys in turn."""
    n, h, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    i, e, f = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, E), tl.arange(0, F)
    rows, there, there_out = i[:, None] < n_queries, e[None, :] < width, f[None, :] < width_out
    dq_block = tl.load(dq + n * dq_n + i[:, None] * dq_token + h * width + e[None, :], mask=rows & there, other=0.0)
    q_block = tl.load(q + (h * n_queries + i[:, None]) * width + e[None, :], mask=rows & there, other=0.0)
    mixed = tl.zeros((BLOCK, F), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_keys, BLOCK):
        j = start + tl.arange(0, BLOCK)
        keys = j[:, None] < n_keys
        k_block = tl.load(k + (h * n_keys + j[:, None]) * width + e[None, :], mask=keys & there, other=0.0)
        v_block = tl.load(v + (h * n_keys + j[:, None]) * width_out + f[None, :], mask=keys & there_out, other=0.0)
        a_block = tl.load(
            a + (h * n_queries + i[:, None]) * n_keys + j[None, :], mask=rows & (j[None, :] < n_keys), other=0.0
        )
        scores = tl.dot(dq_block, tl.trans(k_block))
        if KEYS_MOVE:
            moved = tl.load(
                dk + n * dk_n + j[:, None] * dk_token + h * width + e[None, :], mask=keys & there, other=0.0
            )
            scores += tl.dot(q_block, tl.trans(moved))
        weighted = scores * a_block * scale
        total += tl.sum(weighted, axis=1)
        mixed += tl.dot(weighted.to(v_block.dtype), v_block)
        if VALUES_MOVE:
            moved = tl.load(
                dv + n * dv_n + j[:, None] * dv_token + h * width_out + f[None, :], mask=keys & there_out, other=0.0
            )
            mixed += tl.dot(a_block, moved)
    at_rest = tl.load(z + (h * n_queries + i[:, None]) * width_out + f[None, :], mask=rows & there_out, other=0.0)
    mixed -= total[:, None] * at_rest
    place = out + n * out_n + i[:, None] * out_token + h * width_out + f[None, :]
    tl.store(place, mixed.to(q_block.dtype), mask=rows & there_out)
