"""Products of few rows with a weight matrix in float32 on a CUDA device: some texts written token by token.

torch's own kernels cut these products into so few parts that most of a GPU waits. Here a program gives a few columns of
the result and reads its part of the matrix once. Tensor cores know no float32: each factor goes in as the sum of two
numbers of 11 bits, and three products of these are almost as exact ("tf32x3": an error of 2^-21 or so).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import block_of, kernel, runnable, tl

ROWS = range(2, 65)
DEPTH = 64
"""Of a row and of the matrix what is multiplied at a time."""

SMALLEST = 1 << 19
"""Numbers of a matrix: products with less are over before the next could be launched."""

VOCABULARY = 1 << 13
"""Of a matrix with more rows than this a program takes more of them."""


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
    blocks = {"ROWS": block_of(len(rows)), "COLUMNS": 64 if n_out > VOCABULARY else 16, "DEPTH": DEPTH}
    _product_kernel[(-(-n_out // blocks["COLUMNS"]),)](
        rows, weight, weight if bias is None else bias, out, len(rows), n_out, width,
        BIASED=bias is not None, **blocks, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out


@kernel
def _product_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, n_rows, n_out, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the result, of all rows."""
    i, j = tl.arange(0, ROWS)[:, None], tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row, column = i < n_rows, (j < n_out)[None, :]
    left = x + i * width + tl.arange(0, DEPTH)[None, :]
    right = weight + j[None, :].to(tl.int64) * width + tl.arange(0, DEPTH)[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, width, DEPTH):
        a = tl.load(left + start, mask=row, other=0.0)
        b = tl.load(right + start, mask=column, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    if BIASED:
        total += tl.load(bias + j, mask=j < n_out, other=0.0)[None, :]
    tl.store(out + i * n_out + j[None, :], total, mask=row & column)
