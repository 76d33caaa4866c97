"""Products of few rows with a weight matrix in float32 on a CUDA device: some texts written token by token.

torch's own kernels cut these products into so few parts that most of a GPU waits, but they are launched faster: so this
one serves work that is recorded (nn/recording.py). A program gives a few columns of the result and reads its part
of the matrix once. Tensor cores know no float32: each factor goes in as the sum of two numbers of 10 bits, and three
products of these are as exact ("tf32x3").
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import kernel, runnable, tl

ROWS = range(2, 65)
DEPTH = 64
"""Of a row and of the matrix what is multiplied at a time."""

WIDE = 1 << 13
"""A matrix with more rows is a vocabulary, of which a program takes more."""


def usable(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes such rows; it knows no gradient."""
    few = x.numel() // x.shape[-1] in ROWS and x.shape[-1] % DEPTH == 0
    plain = x.dtype == weight.dtype == torch.float32 and not torch.is_grad_enabled() and weight.is_contiguous()
    return few and plain and runnable(x)


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*B out"]:
    """``x @ weight.T + bias``."""
    n_out, width = weight.shape
    rows = x.reshape(-1, width)
    out = x.new_empty(*x.shape[:-1], n_out)
    block = {"M": max(16, 1 << (len(rows) - 1).bit_length()), "N": 64 if n_out > WIDE else 16, "K": DEPTH}
    grid = (-(-n_out // block["N"]),)
    _product_kernel[grid](
        rows, weight, weight if bias is None else bias, out, len(rows), n_out, width,
        BIASED=bias is not None, **block, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out


@kernel
def _product_kernel(  # type: ignore[no-untyped-def]
    x, weight, bias, out, n_rows, n_out, width,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the result, of all rows."""
    i, j = tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)
    row, column = i < n_rows, (j < n_out)[None, :]
    left = x + i * width + tl.arange(0, K)[None, :]
    right = weight + j[None, :].to(tl.int64) * width + tl.arange(0, K)[:, None]
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, width, K):
        a = tl.load(left + start, mask=row, other=0.0)
        b = tl.load(right + start, mask=column, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    if BIASED:
        total += tl.load(bias + j, mask=j < n_out, other=0.0)[None, :]
    tl.store(out + i * n_out + j[None, :], total, mask=row & column)
