"""Self-attention of long rows, block by block, for half precision on a CUDA device.

Rows that do not fit on the chip (nn/short_rows.py has those that do) are read in blocks of queries and keys, and the
softmax is kept as it grows (Dao et al. 2022). Texts lie one after another, so what a block may see is one stretch of
the row: the rest is never read, and only where a text or the past ends is there a mask. Backward computes the weights
again, once by queries and once by keys, and writes the gradient of the projection in its place.

    causal, by blocks:       key 0 1 2 3
                     query 0     /             /  with a mask
                           1     # /           #  seen as a whole
                           2     # # /
                           3     # # # /
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import BITS, HALF, LOWEST, TensorDescriptor, block_of, kernel, runnable, tl
from regard.nn.mask import SelfAttentionLayout

SHORTEST, LONGEST, WIDEST = 129, 4096, 128
"""Tokens of a row, and the width of a head, that are taken: longer rows were not tried."""

GENERATIONS = (9, 10)
"""Of GPUs, Hopper and after it: blocks are read as wholes, and matrix units take them from where they were put."""


class Blocks(NamedTuple):
    """How many queries and keys a program works on at once, by how many warps, loading how far ahead, in what room."""

    Q: int
    K: int
    num_warps: int
    num_stages: int
    maxnreg: int | None = None


FORWARD = {64: Blocks(64, 64, 4, 3, 128), 128: Blocks(128, 128, 8, 2)}
BY_QUERY = {64: Blocks(64, 64, 4, 3, 128), 128: Blocks(128, 64, 8, 2)}
BY_KEY = {64: Blocks(64, 64, 4, 3, 168), 128: Blocks(64, 128, 8, 2)}
"""For heads up to so wide: for 64 the fastest on an H200 (bench/attention.py), for 128 what leaves nothing spilled."""


def usable(projected: Tensor, width: int) -> bool:
    """Whether the kernels take rows like these, of heads so wide."""
    half, long = projected.dtype in HALF, SHORTEST <= projected.shape[1] <= LONGEST
    return half and long and width <= WIDEST and width % 8 == 0 and runnable(projected, GENERATIONS)


def bounds(segment: Int[Tensor, "B T"]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Where the text of each token begins and ends; for empty places both are where those begin."""
    here = torch.arange(segment.shape[1], dtype=torch.int32, device=segment.device)
    changes = segment[:, 1:] != segment[:, :-1]
    begins = torch.nn.functional.pad(changes, (1, 0), value=True)
    ends = torch.nn.functional.pad(changes, (0, 1), value=True)
    begin = torch.where(begins, here, 0).cummax(1).values
    end = torch.where(ends, here + 1, len(here)).flip(1).cummin(1).values.flip(1)
    return begin, torch.where(segment > 0, end, begin)


def within_rows(
    projected: Float[Tensor, "B T HEEE"], within: SelfAttentionLayout, n_heads: int
) -> Float[Tensor, "B T HE"]:
    """What the heads of each row mix, from queries, keys and values of all heads one beside the other."""
    begin, end = (each.contiguous() for each in bounds(within.positions.segment))
    mixed: Tensor = _mix(projected, begin, end, n_heads, within.causal)[0]
    return mixed


INPUTS = "Tensor projected, Tensor begin, Tensor end, int n_heads, bool causal"


@torch.library.custom_op("regard::within_long_rows", mutates_args=(), schema=f"({INPUTS}) -> (Tensor, Tensor)")
def _mix(projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _forward(projected, begin, end, n_heads, causal)


@torch.library.custom_op(
    "regard::within_long_rows_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor out, Tensor logs, {INPUTS}) -> Tensor",
)
def _mix_backward(
    grad: Tensor, out: Tensor, logs: Tensor, projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool
) -> Tensor:
    return _backward(grad.contiguous(), out, logs, projected, begin, end, n_heads, causal)


@_mix.register_fake
def _(projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool) -> tuple[Tensor, Tensor]:
    return _room(projected, n_heads)


@_mix_backward.register_fake
def _(
    grad: Tensor, out: Tensor, logs: Tensor, projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool
) -> Tensor:
    return torch.empty_like(projected)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_heads, ctx.causal = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _mix_gradient(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None, None, None, None]:
    return _mix_backward(grad, *ctx.saved_tensors, ctx.n_heads, ctx.causal), None, None, None, None


_mix.register_autograd(_mix_gradient, setup_context=_keep)


def _room(projected: Tensor, n_heads: int) -> tuple[Float[Tensor, "B T HE"], Float[Tensor, "B H T4"]]:
    """Room for what is mixed, and for the logarithm of what each softmax divides by (by four tokens: 16 bytes)."""
    n_rows, length, width = projected.shape
    out = projected.new_empty(n_rows, length, width // 3)
    return out, projected.new_empty(n_rows, n_heads, -(-length // 4) * 4, dtype=torch.float32)


def _forward(
    projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor]:
    out, logs = _room(projected, n_heads)
    grid, sizes, how = _plan(projected, n_heads, FORWARD, "Q", blocks)
    rows = _heads(projected, how, how["K"])
    _forward_kernel[grid](projected, rows, begin, end, out, logs, *sizes, CAUSAL=causal, **how)
    return out, logs


def _backward(
    grad: Tensor, out: Tensor, logs: Tensor, projected: Tensor, begin: Tensor, end: Tensor, n_heads: int, causal: bool,
    by_query: Blocks | None = None, by_key: Blocks | None = None,
) -> Tensor:  # fmt: skip
    found, given = torch.empty_like(projected), torch.empty_like(logs)
    grid, sizes, how = _plan(projected, n_heads, BY_QUERY, "Q", by_query)
    rows = _heads(projected, how, how["K"])
    _by_query_kernel[grid](grad, projected, rows, begin, end, out, logs, given, found, *sizes, CAUSAL=causal, **how)
    grid, sizes, how = _plan(projected, n_heads, BY_KEY, "K", by_key)
    blocks = (
        *(_heads(each, how, how["Q"]) for each in (projected, grad)),
        *(_each(x, how["Q"], sizes[0]) for x in (logs, given)),
    )
    _by_key_kernel[grid](projected, begin, end, *blocks, found, *sizes, CAUSAL=causal, **how)
    return found


def _heads(rows: Float[Tensor, "B T NE"], how: dict[str, Any], n_tokens: int) -> Any:
    """Rows for a kernel to read so many tokens of a head at once, zeros where a row or a head has ended."""
    by_head = rows.unflatten(2, (-1, how["WIDTH"]))
    return TensorDescriptor.from_tensor(by_head, [1, n_tokens, 1, how["E"]])


def _each(values: Float[Tensor, "B H T4"], n_tokens: int, length: int) -> Any:
    """The same for one value a token."""
    return TensorDescriptor.from_tensor(values.flatten(0, 1)[:, :length], [1, n_tokens])


def _plan(
    projected: Tensor, n_heads: int, table: dict[int, Blocks], own: str, blocks: Blocks | None
) -> tuple[tuple[int, int, int], tuple[int, float], dict[str, Any]]:
    """The grid of a kernel, a program for each block of its `own`, the sizes of its rows, and how it is compiled."""
    n_rows, length, width = projected.shape[0], projected.shape[1], projected.shape[2] // (3 * n_heads)
    blocks = blocks or table[64 if width <= 64 else 128]
    step: int = getattr(blocks, own)
    how = {"H": n_heads, "WIDTH": width, "E": block_of(width), "EVEN": length % step == 0, **blocks._asdict()}
    return (-(-length // step), n_heads, n_rows), (length, width**-0.5), how


@kernel
def _load(head, i, end, STRIDE: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, CLIP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Tokens `i` of a head; zeros from `end` on, if there may be such."""
    e = tl.arange(0, E)
    place = head + i[:, None] * STRIDE + e[None, :]
    if CLIP or E != WIDTH:
        block = tl.load(place, mask=(i < end)[:, None] & (e < WIDTH)[None, :], other=0.0)
    else:
        block = tl.load(place)
    return block


@kernel
def _store(head, i, end, block, STRIDE: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, CLIP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write tokens `i` of a head, those before `end`."""
    e = tl.arange(0, E)
    place = head + i[:, None] * STRIDE + e[None, :]
    if CLIP or E != WIDTH:
        tl.store(place, block.to(head.dtype.element_ty), mask=(i < end)[:, None] & (e < WIDTH)[None, :])
    else:
        tl.store(place, block.to(head.dtype.element_ty))


@kernel
def _read(rows, b, at, n, T: tl.constexpr, E: tl.constexpr):  # type: ignore[no-untyped-def]
    """T tokens of a row from `at`, in its `n`th stretch of a head's width."""
    return rows.load([b, at, n, 0]).reshape(T, E)


@kernel
def _load_each(values, i, end, CLIP: tl.constexpr):  # type: ignore[no-untyped-def]
    """One value for each token `i`; zeros from `end` on, if there may be such."""
    return tl.load(values + i, mask=i < end, other=0) if CLIP else tl.load(values + i)


@kernel
def _sight(begin, end, i, length, CAUSAL: tl.constexpr, CLIP: tl.constexpr):  # type: ignore[no-untyped-def]
    """From where to where each of the queries `i` sees."""
    left, right = _load_each(begin, i, length, CLIP), _load_each(end, i, length, CLIP)
    if CAUSAL:
        right = tl.minimum(right, i + 1)
    return left, right


@kernel
def _between(left, right, at, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which of the N places from `at` lie between what is left and what is right of them, row by row."""
    j = at + tl.arange(0, N)[None, :]
    return (j >= left[:, None]) & (j < right[:, None])


@kernel
def _keys(begin, end, first, length, CAUSAL: tl.constexpr, Q: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """What the queries from `first` see: all of them keys from the first result to the second, some to the third."""
    last = tl.minimum(first + Q, length) - 1
    start, stop = tl.load(begin + first), tl.load(end + last)
    shared = stop
    if CAUSAL:
        shared, stop = tl.minimum(first + 1, stop), tl.minimum(last + 1, stop)
    alike = start == tl.load(begin + last)  # one text
    return start, start + tl.where(alike, (shared - start) // K * K, 0), stop


@kernel
def _queries(begin, end, first, length, CAUSAL: tl.constexpr, Q: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Who sees the keys from `first`: queries from the first result to the last, all between the two others."""
    last = tl.minimum(first + K, length) - 1
    start, stop = tl.load(begin + first), tl.load(end + last)
    alike = start == tl.load(begin + last)  # one text
    shared = start
    if CAUSAL:
        start, shared = first, last
    start = start // 4 * 4  # values are read by 16 bytes
    shared = start + (shared - start + Q - 1) // Q * Q
    n_shared = tl.where(alike, tl.maximum(stop - shared, 0) // Q * Q, 0)
    return start, shared, shared + n_shared, stop


@kernel
def _mix_stretch(  # type: ignore[no-untyped-def]
    mixed, total, top, q, rows, b, h, left, right, start, stop, steep,
    MASKED: tl.constexpr, H: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add what a block of queries sees in a stretch of keys to what it has mixed, relative to its highest scores."""
    for at in range(start, stop, K):
        k = _read(rows, b, at, H + h, K, E)
        scores = tl.dot(q, tl.trans(k))
        if MASKED:
            scores = tl.where(_between(left, right, at, K), scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1) * steep)
        raised = tl.exp2(scores * steep - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(raised, 1)
        v = _read(rows, b, at, 2 * H + h, K, E)
        mixed = tl.dot(raised.to(v.dtype), v, mixed * shrink[:, None])
        top = higher
    return mixed, total, top


@kernel
def _forward_kernel(  # type: ignore[no-untyped-def]
    projected, rows, begin, end, out, logs, length, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One block of queries, those with most to see first: ``Z = A V``."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * Q
    h, b = tl.program_id(1), tl.program_id(2)
    row, each = b.to(tl.int64) * length, (b.to(tl.int64) * H + h) * (length + 3 & -4)
    i = first + tl.arange(0, Q)
    query = projected + row * (3 * H * WIDTH) + h * WIDTH
    q = _load(query, i, length, 3 * H * WIDTH, WIDTH, E, not EVEN)
    left, right = _sight(begin + row, end + row, i, length, CAUSAL, not EVEN)
    start, middle, stop = _keys(begin + row, end + row, first, length, CAUSAL, Q, K)
    steep = scale * BITS
    mixed, total = tl.zeros((Q, E), tl.float32), tl.zeros((Q,), tl.float32)
    top = tl.full((Q,), LOWEST, tl.float32)
    mixed, total, top = _mix_stretch(
        mixed, total, top, q, rows, b, h, left, right, start, middle, steep, False, H, E, K
    )
    mixed, total, top = _mix_stretch(mixed, total, top, q, rows, b, h, left, right, middle, stop, steep, True, H, E, K)
    total = tl.where(total > 0.0, total, 1.0)
    _store(out + row * (H * WIDTH) + h * WIDTH, i, length, mixed / total[:, None], H * WIDTH, WIDTH, E, not EVEN)
    tl.store(logs + each + i, top + tl.log2(total), mask=i < length)


@kernel
def _query_stretch(  # type: ignore[no-untyped-def]
    dq, q, dz, logs, given, rows, b, h, left, right, start, stop, steep,
    MASKED: tl.constexpr, H: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add the gradient that a block of queries gets from a stretch of keys."""
    for at in range(start, stop, K):
        k, v = _read(rows, b, at, H + h, K, E), _read(rows, b, at, 2 * H + h, K, E)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * steep - logs[:, None])
        if MASKED:
            weights = tl.where(_between(left, right, at, K), weights, 0.0)
        d_weights = tl.dot(dz, tl.trans(v))
        d_scores = weights * (d_weights - given[:, None])
        dq = tl.dot(d_scores.to(k.dtype), k, dq)
    return dq


@kernel
def _by_query_kernel(  # type: ignore[no-untyped-def]
    grad, projected, rows, begin, end, out, logs, given, found, length, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One block of queries: ``dS = A (dA - sum(Z dZ))`` and ``dQ = dS K``; the sums are kept for the keys."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * Q
    h, b = tl.program_id(1), tl.program_id(2)
    row, each = b.to(tl.int64) * length, (b.to(tl.int64) * H + h) * (length + 3 & -4)
    i = first + tl.arange(0, Q)
    place, query = row * (H * WIDTH) + h * WIDTH, row * (3 * H * WIDTH) + h * WIDTH
    z = _load(out + place, i, length, H * WIDTH, WIDTH, E, not EVEN)
    dz = _load(grad + place, i, length, H * WIDTH, WIDTH, E, not EVEN)
    total = tl.sum(z.to(tl.float32) * dz.to(tl.float32), 1)
    tl.store(given + each + i, total, mask=i < length)
    q = _load(projected + query, i, length, 3 * H * WIDTH, WIDTH, E, not EVEN)
    own = _load_each(logs + each, i, length, not EVEN)
    left, right = _sight(begin + row, end + row, i, length, CAUSAL, not EVEN)
    start, middle, stop = _keys(begin + row, end + row, first, length, CAUSAL, Q, K)
    steep = scale * BITS
    dq = tl.zeros((Q, E), tl.float32)
    dq = _query_stretch(dq, q, dz, own, total, rows, b, h, left, right, start, middle, steep, False, H, E, K)
    dq = _query_stretch(dq, q, dz, own, total, rows, b, h, left, right, middle, stop, steep, True, H, E, K)
    _store(found + query, i, length, dq * scale, 3 * H * WIDTH, WIDTH, E, not EVEN)


@kernel
def _key_stretch(  # type: ignore[no-untyped-def]
    dk, dv, k, v, rows, grads, logs, given, b, h, left, right, start, stop, leap, over, steep,
    MASKED: tl.constexpr, H: tl.constexpr, E: tl.constexpr, Q: tl.constexpr,
):  # fmt: skip
    """Add the gradients that a block of keys and values gets from a stretch of queries, leaping `over` some."""
    for step in range(start, stop, Q):
        at = step
        if MASKED:
            at = tl.where(step < leap, step, step + over)
        q, dz = _read(rows, b, at, h, Q, E), _read(grads, b, at, h, Q, E)
        own = logs.load([b * H + h, at]).reshape(Q)
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * steep - own[None, :])
        if MASKED:
            weights = tl.where(_between(left, right, at, Q), weights, 0.0)
        dv = tl.dot(weights.to(dz.dtype), dz, dv)
        d_weights = tl.dot(v, tl.trans(dz))
        d_scores = weights * (d_weights - given.load([b * H + h, at]).reshape(Q)[None, :])
        dk = tl.dot(d_scores.to(q.dtype), q, dk)
    return dk, dv


@kernel
def _by_key_kernel(  # type: ignore[no-untyped-def]
    projected, begin, end, rows, grads, logs, given, found, length, scale,
    CAUSAL: tl.constexpr, EVEN: tl.constexpr, H: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One block of keys: ``dV = A^T dZ`` and ``dK = dS^T Q``, with keys as the rows of ``A^T`` and ``dS^T``."""
    first, h, b = tl.program_id(0) * K, tl.program_id(1), tl.program_id(2)
    i, row = first + tl.arange(0, K), b.to(tl.int64) * length
    key = row * (3 * H * WIDTH) + (H + h) * WIDTH
    k = _load(projected + key, i, length, 3 * H * WIDTH, WIDTH, E, not EVEN)
    v = _load(projected + key + H * WIDTH, i, length, 3 * H * WIDTH, WIDTH, E, not EVEN)
    left = _load_each(begin + row, i, length, not EVEN)
    right = _load_each(end + row, i, length, not EVEN)
    if CAUSAL:
        left = i
    start, shared, unshared, stop = _queries(begin + row, end + row, first, length, CAUSAL, Q, K)
    over = unshared - shared
    steep = scale * BITS
    dk, dv = tl.zeros((K, E), tl.float32), tl.zeros((K, E), tl.float32)
    dk, dv = _key_stretch(
        dk, dv, k, v, rows, grads, logs, given, b, h, left, right,
        start, stop - over, shared, over, steep, True, H, E, Q,
    )  # fmt: skip
    dk, dv = _key_stretch(
        dk, dv, k, v, rows, grads, logs, given, b, h, left, right,
        shared, unshared, shared, 0, steep, False, H, E, Q,
    )  # fmt: skip
    _store(found + key, i, length, dk * scale, 3 * H * WIDTH, WIDTH, E, not EVEN)
    _store(found + key + H * WIDTH, i, length, dv, 3 * H * WIDTH, WIDTH, E, not EVEN)
