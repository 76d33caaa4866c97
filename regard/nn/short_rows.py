"""Self-attention of short rows in one kernel each way, for half precision on a CUDA device.

A row of up to 128 tokens fits on the chip, so one program does all of a head: it reads queries, keys and values where
the projection put them, and writes what they mix and the logarithm of what each softmax divides by; backward it
computes the weights again, from that, and writes the gradient of the projection in its place, so nothing is copied
together. nn/multihead.py has the same in torch, for everything else.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import BITS, HALF, LOWEST, block_of, kernel, runnable, tl
from regard.nn.mask import SelfAttentionLayout

LONGEST, WIDEST = 128, 64
"""Tokens of a row, and the width of a head, that still fit on the chip."""


def usable(projected: Tensor, width: int) -> bool:
    """Whether the kernels take rows like these, of heads so wide."""
    half = projected.dtype in HALF
    return half and projected.shape[1] <= LONGEST and width <= WIDEST and width % 8 == 0 and runnable(projected)


def within_rows(
    projected: Float[Tensor, "B T HEEE"], within: SelfAttentionLayout, n_heads: int
) -> Float[Tensor, "B T HE"]:
    """What the heads of each row mix, from queries, keys and values of all heads one beside the other."""
    segment, position = (each.contiguous() for each in within.positions)
    mixed: Tensor = _mix(projected, segment, position, n_heads, within.causal)[0]
    return mixed


INPUTS = "Tensor projected, Tensor segment, Tensor position, int n_heads, bool causal"


@torch.library.custom_op("regard::within_rows", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)")
def _mix(projected: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    out, logs = _room(projected, n_heads)
    sizes, blocks = _sizes(projected, n_heads), _blocks(projected, n_heads)
    _forward_kernel[len(projected), n_heads](projected, segment, position, out, logs, *sizes, CAUSAL=causal, **blocks)
    return out, logs


@torch.library.custom_op(
    "regard::within_rows_backward", mutates_args=(), schema=f"(Tensor grad, Tensor logs, {INPUTS}) -> Tensor"
)
def _mix_backward(
    grad: Tensor, logs: Tensor, projected: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool
) -> Tensor:
    found, tensors = torch.empty_like(projected), (grad.contiguous(), logs, projected, segment, position)
    sizes, blocks = _sizes(projected, n_heads), _blocks(projected, n_heads)
    _backward_kernel[len(projected), n_heads](*tensors, found, *sizes, CAUSAL=causal, **blocks)
    return found


@_mix.register_fake
def _(projected: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _room(projected, n_heads)


@_mix_backward.register_fake
def _(
    grad: Tensor, logs: Tensor, projected: Tensor, segment: Tensor, position: Tensor, n_heads: int, causal: bool
) -> Tensor:
    return torch.empty_like(projected)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_heads, ctx.causal = inputs
    ctx.save_for_backward(output[1], *tensors)
    ctx.set_materialize_grads(False)


def _mix_gradient(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None, None, None, None]:
    return _mix_backward(grad, *ctx.saved_tensors, ctx.n_heads, ctx.causal), None, None, None, None


_mix.register_autograd(_mix_gradient, setup_context=_keep)


def _room(projected: Tensor, n_heads: int) -> tuple[Float[Tensor, "B T HE"], Float[Tensor, "B H T"]]:
    """Room for what is mixed, and for the logarithm, to base 2, of what each softmax divides by."""
    n_rows, length, width = projected.shape
    out = projected.new_empty(n_rows, length, width // 3)
    return out, projected.new_empty(n_rows, n_heads, length, dtype=torch.float32)


def _sizes(projected: Tensor, n_heads: int) -> tuple[int, int, float]:
    width = projected.shape[2] // (3 * n_heads)
    return projected.shape[1], width, width**-0.5


def _blocks(projected: Tensor, n_heads: int) -> dict[str, int]:
    length, width, _ = _sizes(projected, n_heads)
    return {"T": block_of(length), "E": block_of(width), "H": n_heads, "num_warps": 8 if length > 64 else 4}


@kernel
def _seen(segment, position, b, length, T: tl.constexpr, CAUSAL: tl.constexpr, BY_KEY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which keys each query may see: a row for each query, or for each key."""
    t = tl.arange(0, T)
    text = tl.load(segment + b * length + t, mask=t < length, other=0)
    seen = (text[:, None] == text[None, :]) & (text > 0)[:, None]
    if CAUSAL:
        at = tl.load(position + b * length + t, mask=t < length, other=0)
        seen = seen & ((at[:, None] <= at[None, :]) if BY_KEY else (at[None, :] <= at[:, None]))
    return seen


@kernel
def _forward_kernel(  # type: ignore[no-untyped-def]
    projected, segment, position, out, logs, length, width, scale,
    T: tl.constexpr, E: tl.constexpr, H: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One head of one row: ``Z = A V``, zeros where a query may see nothing."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, e = tl.arange(0, T)[:, None], tl.arange(0, E)[None, :]
    there = (i < length) & (e < width)
    query = projected + (b * length + i) * (3 * H * width) + h * width + e
    q = tl.load(query, mask=there, other=0.0)
    k = tl.load(query + H * width, mask=there, other=0.0)
    v = tl.load(query + 2 * H * width, mask=there, other=0.0)
    seen = _seen(segment, position, b, length, T, CAUSAL, False)
    scores = tl.where(seen, tl.dot(q, tl.trans(k)) * (scale * BITS), float("-inf"))
    top = tl.maximum(tl.max(scores, 1), LOWEST)
    raised = tl.exp2(scores - top[:, None])
    total = tl.sum(raised, 1)
    total = tl.where(total > 0.0, total, 1.0)
    mixed = tl.dot(raised.to(v.dtype), v) / total[:, None]
    tl.store(out + (b * length + i) * (H * width) + h * width + e, mixed.to(v.dtype), mask=there)
    t = tl.arange(0, T)
    tl.store(logs + (b * H + h) * length + t, top + tl.log2(total), mask=t < length)


@kernel
def _backward_kernel(  # type: ignore[no-untyped-def]
    grad, logs, projected, segment, position, found, length, width, scale,
    T: tl.constexpr, E: tl.constexpr, H: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One head of one row, keys as the rows of ``A^T`` and ``dS^T``, which two of the products take as they are.

    ``dV = A^T dZ``, ``dS = A (dA - sum(A dA))``, ``dK = dS^T Q``, ``dQ = dS K``.
    """
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, e = tl.arange(0, T)[:, None], tl.arange(0, E)[None, :]
    there = (i < length) & (e < width)
    place = (b * length + i) * (3 * H * width) + h * width + e
    q = tl.load(projected + place, mask=there, other=0.0)
    k = tl.load(projected + place + H * width, mask=there, other=0.0)
    v = tl.load(projected + place + 2 * H * width, mask=there, other=0.0)
    dz = tl.load(grad + (b * length + i) * (H * width) + h * width + e, mask=there, other=0.0)
    t = tl.arange(0, T)
    log = tl.load(logs + (b * H + h) * length + t, mask=t < length, other=0.0)
    scores = tl.dot(k, tl.trans(q)) * (scale * BITS)
    seen = _seen(segment, position, b, length, T, CAUSAL, True)
    weights = tl.where(seen, tl.exp2(scores - log[None, :]), 0.0)
    dv = tl.dot(weights.to(dz.dtype), dz)
    tl.store(found + place + 2 * H * width, dv.to(dz.dtype), mask=there)
    d_weights = tl.dot(v, tl.trans(dz))
    d_scores = (weights * (d_weights - tl.sum(weights * d_weights, 0)[None, :]) * scale).to(dz.dtype)
    tl.store(found + place + H * width, tl.dot(d_scores, q).to(dz.dtype), mask=there)
    tl.store(found + place, tl.dot(tl.trans(d_scores), k).to(dz.dtype), mask=there)
