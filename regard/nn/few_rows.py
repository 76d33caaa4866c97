"""Products of few rows with a weight matrix in float32 on a CUDA device: some texts written token by token.

torch's own kernels cut these products into so few parts that most of a GPU waits. Here a program takes a few columns of
the result, and of a narrow matrix only a part of the depth: the one that is ready last adds the parts up, always in the
same order. Tensor cores know no float32: each factor goes in as the sum of two numbers of 11 bits, and three products
of these are almost as exact ("tf32x3": an error of 2^-21 or so).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import block_of, kernel, runnable, tl

ROWS = range(2, 65)
COLUMNS, DEPTH = 32, 64
"""Columns of the result that a program gives, and what is multiplied at a time of a row and of the matrix."""

SMALLEST = 1 << 19
"""Numbers of a matrix: products with less are over before the next could be launched."""

PARTED = 1 << 13
"""Of a matrix with more rows than this, a vocabulary, there are programs enough without parts."""


def usable(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes such rows; it knows no gradient."""
    few = x.shape[:-1].numel() in ROWS and x.shape[-1] == weight.shape[1] and x.shape[-1] % DEPTH == 0
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
        ROWS=height, COLUMNS=COLUMNS, DEPTH=DEPTH, PARTS=n_parts, BIASED=bias is not None,
        num_warps=4, num_stages=3 if n_parts > 1 else 4,
    )  # fmt: skip
    return out


def _n_parts(n_out: int, width: int) -> int:
    return next(n for n in (4, 2, 1) if n == 1 or (n_out <= PARTED and width % (n * DEPTH) == 0))


class _Counters(threading.local):
    """How many parts of each block are ready: zeros before a product and after it, for one stream of work at a time."""

    def __init__(self) -> None:
        self.by_stream: dict[tuple[torch.device, int], Tensor] = {}
        self.recorded: Tensor | None = None


_counters = _Counters()


def _ready(device: torch.device) -> Int[Tensor, " blocks"]:
    """The counters of the work that is recorded, or of the stream that works now."""
    if _counters.recorded is not None:
        return _counters.recorded
    stream = device, torch.cuda.current_stream(device).cuda_stream
    if stream not in _counters.by_stream:
        _counters.by_stream[stream] = _zeros(device)
    return _counters.by_stream[stream]


def _zeros(device: torch.device) -> Int[Tensor, " blocks"]:
    return torch.zeros(-(-PARTED // COLUMNS), dtype=torch.int32, device=device)


@contextmanager
def recorded(device: torch.device) -> Iterator[None]:
    """What is recorded meanwhile has counters of its own, for it may be played beside other work."""
    _counters.recorded = _zeros(device)
    try:
        yield
    finally:
        _counters.recorded = None


@kernel
def _product_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, parts, ready, n_rows, n_out, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the result, of all rows, from a part of the depth."""
    block, part = tl.program_id(0), tl.program_id(1)
    i, j = tl.arange(0, ROWS)[:, None], block * COLUMNS + tl.arange(0, COLUMNS)
    row, column = i < n_rows, (j < n_out)[None, :]
    left = x + i * width + tl.arange(0, DEPTH)[None, :]
    right = weight + j[None, :].to(tl.int64) * width + tl.arange(0, DEPTH)[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(part * (width // PARTS), (part + 1) * (width // PARTS), DEPTH):
        a = tl.load(left + start, mask=row, other=0.0)
        b = tl.load(right + start, mask=column, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    last = True
    if PARTS > 1:
        place = parts + block * (PARTS * ROWS * COLUMNS) + i * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(place + part * (ROWS * COLUMNS), total, cache_modifier=".cg")
        tl.debug_barrier()  # all of the part is there before it counts
        last = tl.atomic_add(ready + block, 1, sem="acq_rel") == PARTS - 1
        if last:
            total = tl.zeros([ROWS, COLUMNS], tl.float32)
            for each in tl.static_range(PARTS):
                total += tl.load(place + each * (ROWS * COLUMNS), cache_modifier=".cg")
            tl.store(ready + block, 0)
    if last:
        if BIASED:
            total += tl.load(bias + j, mask=j < n_out, other=0.0)[None, :]
        tl.store(out + i * n_out + j[None, :], total, mask=row & column)
