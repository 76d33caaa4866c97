"""Attention of one query in each row, for writing token by token on a CUDA device.

torch's own kernels work for 64 queries at a time, with one of them as long as with all. Here one program does a head of
a row; it passes over what nobody may see, so room that is kept for more tokens costs little.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.kernels import HALF, block_of, kernel, runnable, tl

KEYS, WIDEST = 64, 128
"""Keys looked at together, and the width of a head that is taken."""


def usable(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> bool:
    """Whether the kernel takes queries and a memory like these; it knows no gradient."""
    plain = query.dtype in (torch.float32, *HALF) and not torch.is_grad_enabled()
    rows, n_heads, n_keys, width = key.shape
    one_each = query.shape == (rows, n_heads, 1, width) and allowed.shape == (rows, 1, 1, n_keys)
    fits = width <= WIDEST and key.shape == value.shape
    even = all(part.stride(3) == 1 for part in (query, key, value, allowed))
    return one_each and fits and even and plain and runnable(query)


def look(
    query: Float[Tensor, "B H 1 E"], key: Float[Tensor, "B H K E"], value: Tensor, allowed: Bool[Tensor, "B 1 1 K"]
) -> Float[Tensor, "B H 1 E"]:
    """``softmax(Q K^T / sqrt(E)) V`` over the keys that each row allows, of which there is one at least."""
    n_rows, n_heads, n_keys, width = key.shape
    mixed = query.new_empty(n_rows, 1, n_heads, width).transpose(1, 2)
    strides = [stride for part in (query, key, value) for stride in part.stride()[:3]]
    _look_kernel[n_rows, n_heads](
        query, key, value, allowed, mixed, *strides, allowed.stride(0), n_keys, width, width**-0.5,
        K=KEYS, E=block_of(width),
    )  # fmt: skip
    return mixed


@kernel
def _look_kernel(  # type: ignore[no-untyped-def]
    query, key, value, allowed, mixed,
    query_row, query_head, _query, key_row, key_head, key_each, value_row, value_head, value_each, allowed_row,
    n_keys, width, scale, K: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """One head of one row: the softmax runs along, corrected whenever a greater score is met."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    e = tl.arange(0, E)
    q = tl.load(query + b * query_row + h * query_head + e, mask=e < width, other=0.0).to(tl.float32) * scale
    top, total, sums = float("-inf"), 0.0, tl.zeros([E], tl.float32)
    for start in range(0, n_keys, K):
        i = start + tl.arange(0, K)
        seen = tl.load(allowed + b * allowed_row + i, mask=i < n_keys, other=0) != 0
        if tl.max(seen.to(tl.int32), 0) > 0:
            there = seen[:, None] & (e < width)[None, :]
            at_key = key + b * key_row + h * key_head + i[:, None] * key_each + e[None, :]
            at_value = value + b * value_row + h * value_head + i[:, None] * value_each + e[None, :]
            k, v = tl.load(at_key, mask=there, other=0.0), tl.load(at_value, mask=there, other=0.0)
            scores = tl.where(seen, tl.sum(k.to(tl.float32) * q[None, :], 1), float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 0))
            less, raised = tl.exp(top - higher), tl.exp(scores - higher)
            total = total * less + tl.sum(raised, 0)
            sums = sums * less + tl.sum(raised[:, None] * v.to(tl.float32), 0)
            top = higher
    out = mixed + (b * tl.num_programs(1) + h) * width + e
    tl.store(out, (sums / total).to(mixed.dtype.element_ty), mask=e < width)
