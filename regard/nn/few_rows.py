"""Products of few rows with a weight matrix in float32 on a CUDA device: some texts written token by token.

torch's own kernels cut these products into so few parts that most of a GPU waits. Here a program takes a few columns of
the result and, unless the matrix is a vocabulary, a part of the depth: the one that is ready last adds the parts up,
always in the same order. Tensor cores know no float32: each factor goes in as the sum of two numbers of 11 bits, and
three products of these are almost as exact ("tf32x3": an error of 2^-21 or so).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import block_of, kernel, runnable, tl

FEW = range(2, 65)
COLUMNS, DEPTH = 32, 64
"""Columns of the result that a program gives, and what is multiplied at a time of a row and of the matrix."""

SMALLEST = 1 << 19
"""Numbers of a matrix: products with less are over before the next could be launched."""

VOCABULARY = 1 << 13
"""A matrix with more rows than this is one: it keeps a GPU busy without parts."""


def usable(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes such rows; it knows no gradient."""
    few = x.shape[:-1].numel() in FEW and x.shape[-1] == weight.shape[1] and x.shape[-1] % DEPTH == 0
    plain = x.dtype == weight.dtype == torch.float32 and not torch.is_grad_enabled() and weight.is_contiguous()
    pays = weight.numel() >= SMALLEST and runnable(x)
    return few and plain and pays and not torch.is_autocast_enabled("cuda")


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*B out"]:
    """``x @ weight.T + bias``."""
    n_out, width = weight.shape
    rows = x.reshape(-1, width).contiguous()
    out = x.new_empty(*x.shape[:-1], n_out)
    height, n_blocks, n_parts = block_of(len(rows)), -(-n_out // COLUMNS), _n_parts(n_out, width)
    parts = x.new_empty(n_blocks * n_parts * height * COLUMNS if n_parts > 1 else 0)
    _product_kernel[n_blocks, n_parts](
        rows, weight, weight if bias is None else bias, out, parts, _ready(x.device), len(rows), n_out, width,
        HEIGHT=height, COLUMNS=COLUMNS, DEPTH=DEPTH, PARTS=n_parts, BIASED=bias is not None,
        num_warps=4, num_stages=3 if n_parts > 1 else 4,  # a part is soon at its end
    )  # fmt: skip
    return out


def _n_parts(n_out: int, width: int) -> int:
    """Into how many equal parts the depth is cut; more than four were slower (docs/LOG.md)."""
    return 1 if n_out > VOCABULARY else next(n for n in (4, 2, 1) if width % (n * DEPTH) == 0)


def counters(device: torch.device) -> Int[Tensor, " blocks"]:
    """How many parts of each block are ready: zeros before a product and after it, so they serve one after another."""
    return torch.zeros(-(-VOCABULARY // COLUMNS), dtype=torch.int32, device=device)


_by_stream: dict[tuple[torch.device, int], Tensor] = {}
_kept: ContextVar[Tensor | None] = ContextVar("kept", default=None)


@contextmanager
def counted_in(kept: Int[Tensor, " blocks"]) -> Iterator[None]:
    """Products count in these meanwhile: what is recorded now may be played beside other work."""
    before = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(before)


def _ready(device: torch.device) -> Int[Tensor, " blocks"]:
    """Counters that no other product uses at the same time: those of a recording, or of the stream that works now."""
    kept = _kept.get()
    if kept is not None and kept.device == device:
        return kept
    if torch.cuda.is_current_stream_capturing():  # zeroed whenever it is played
        return counters(device)
    stream = device, torch.cuda.current_stream(device).cuda_stream
    if stream not in _by_stream:
        _by_stream[stream] = counters(device)
    return _by_stream[stream]


@kernel
def _product_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, parts, ready, n_rows, n_out, width,
    HEIGHT: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the result, of all rows, from a part of the depth."""
    block, part = tl.program_id(0), tl.program_id(1)
    i, j = tl.arange(0, HEIGHT)[:, None], block * COLUMNS + tl.arange(0, COLUMNS)
    row, column = i < n_rows, (j < n_out)[None, :]
    left = x + i * width + tl.arange(0, DEPTH)[None, :]
    right = weight + j[None, :].to(tl.int64) * width + tl.arange(0, DEPTH)[:, None]
    total = tl.zeros([HEIGHT, COLUMNS], tl.float32)
    for start in range(part * (width // PARTS), (part + 1) * (width // PARTS), DEPTH):
        a = tl.load(left + start, mask=row, other=0.0)
        b = tl.load(right + start, mask=column, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    last = True
    if PARTS > 1:
        place = parts + block * (PARTS * HEIGHT * COLUMNS) + i * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(place + part * (HEIGHT * COLUMNS), total, cache_modifier=".cg")
        tl.debug_barrier()  # all of the part is there before it counts
        last = tl.atomic_add(ready + block, 1, sem="acq_rel") == PARTS - 1
        if last:
            total = tl.zeros([HEIGHT, COLUMNS], tl.float32)
            for each in tl.static_range(PARTS):
                total += tl.load(place + each * (HEIGHT * COLUMNS), cache_modifier=".cg")
            tl.store(ready + block, 0)
    if last:
        if BIASED:
            total += tl.load(bias + j, mask=j < n_out, other=0.0)[None, :]
        tl.store(out + i * n_out + j[None, :], total, mask=row & column)
