"""Split-K matrix multiplication of a few rows with a weight matrix, in Triton, in float32 on a CUDA device.

Decoding multiplies 2 to 64 rows with every weight. torch's own kernels cut that into so few tiles that most of a GPU is
idle. Here a program computes a tile of a few columns over a part of K (all of K for a vocabulary, which has columns
enough); of the programs of a tile the last one adds up the parts, always in the same order. Tensor cores have no
float32: each factor is the sum of two numbers of 11 bits, and three products of these are almost as exact ("tf32x3", an
error of about 2^-21).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.triton_support import jit, runs_on, tile_size, tl
from regard.nn.kernels.workspace import CAPACITY, semaphores

ROWS = range(2, 65)
BLOCK_N, BLOCK_K = 32, 64

MIN_WEIGHTS = 1 << 19
"""Numbers of a weight matrix: products with less are over before the next could be launched."""

MAX_SPLIT_N = BLOCK_N * CAPACITY
"""A matrix with more outputs than this is a vocabulary: its tiles keep a GPU busy without split-K."""

LIMITS = f"{ROWS.start} to {ROWS.stop - 1} rows, without gradients, weights of at least {MIN_WEIGHTS:,} numbers"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype == torch.float32 and runs_on(device)


def supports(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return True if the kernel takes such rows and weights; it has no backward pass."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or weight.numel() < MIN_WEIGHTS:
        return False
    few = x.shape[:-1].numel() in ROWS and x.shape[-1] == weight.shape[1] and x.shape[-1] % BLOCK_K == 0
    plain = x.dtype == weight.dtype and weight.is_contiguous() and not torch.is_autocast_enabled("cuda")
    return few and plain and available(x.device, x.dtype)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``."""
    n, k = weight.shape
    rows = x.reshape(-1, k).contiguous()
    out = x.new_empty(*x.shape[:-1], n)
    block_m, n_tiles, split_k = tile_size(len(rows)), -(-n // BLOCK_N), _split_k(n, k)
    partials = x.new_empty(n_tiles * split_k * block_m * BLOCK_N if split_k > 1 else 0)
    ready = semaphores(n_tiles, x.device) if split_k > 1 else partials
    _gemm_kernel[n_tiles, split_k](
        rows, weight, weight if bias is None else bias, out, partials, ready, len(rows), n, k,
        BLOCK_M=block_m, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, SPLIT_K=split_k, HAS_BIAS=bias is not None,
        num_warps=4, num_stages=3 if split_k > 1 else 4,  # a part is soon at its end
    )  # fmt: skip
    return out


def _split_k(n: int, k: int) -> int:
    """Return into how many equal parts K is cut; more than four were slower (docs/LOG.md)."""
    return 1 if n > MAX_SPLIT_N else next(parts for parts in (4, 2, 1) if k % (parts * BLOCK_K) == 0)


@jit
def _gemm_kernel(  # type: ignore[no-untyped-def]
    a_in, b_in, bias, out, partials, ready, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Compute some columns of the result, for all rows, over a part of K."""
    tile, part = tl.program_id(0), tl.program_id(1)
    i, j = tl.arange(0, BLOCK_M)[:, None], tile * BLOCK_N + tl.arange(0, BLOCK_N)
    row, column = i < m, (j < n)[None, :]
    a_at = a_in + i * k + tl.arange(0, BLOCK_K)[None, :]
    b_at = b_in + j[None, :].to(tl.int64) * k + tl.arange(0, BLOCK_K)[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(part * (k // SPLIT_K), (part + 1) * (k // SPLIT_K), BLOCK_K):
        a = tl.load(a_at + start, mask=row, other=0.0)
        b = tl.load(b_at + start, mask=column, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    last = True
    if SPLIT_K > 1:
        partial_at = partials + tile * (SPLIT_K * BLOCK_M * BLOCK_N) + i * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        tl.store(partial_at + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
        tl.debug_barrier()  # all threads have stored before the part counts as ready
        last = tl.atomic_add(ready + tile, 1, sem="acq_rel") == SPLIT_K - 1
        if last:
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for each in tl.static_range(SPLIT_K):
                acc += tl.load(partial_at + each * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
            tl.store(ready + tile, 0)
    if last:
        if HAS_BIAS:
            acc += tl.load(bias + j, mask=j < n, other=0.0)[None, :]
        tl.store(out + i * n + j[None, :], acc, mask=row & column)
