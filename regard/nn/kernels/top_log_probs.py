"""The most likely next tokens of each row of logits, with their log-probabilities, in Triton on a CUDA device.

A search needs the best few of a vocabulary: torch computes the log-probabilities of all, writes them and sorts. Here
the logits are read once. A program goes through a chunk of a row: it sums exponentials, and finds the best tokens in
two rounds, since those of a chunk are all in the groups of tokens with the highest maxima:

    chunk   [ 3 1 4 ] [ 1 5 9 ] [ 2 6 5 ] [ 3 5 8 ]      best 2 of each chunk: look at the best 2 groups alone
                 4         9         6         8

A second kernel combines the chunks of a row.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, jit, runs_on, tile_size, tl

GROUPS, GROUP_SIZE = 128, 32
"""A chunk is so many groups of so many tokens."""

MAX_TOKENS, MAX_CHUNKS = 64, 64
"""The most tokens of a row that are returned, and the most chunks of a vocabulary."""

LIMITS = (
    f"at most {MAX_TOKENS} tokens of a vocabulary of at most {MAX_CHUNKS * GROUPS * GROUP_SIZE:,}, without gradients"
)


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in (torch.float32, *HALF_PRECISION) and runs_on(device)


def supports(logits: Tensor, n: int, eos_id: int, suppressed: Tensor) -> bool:
    """Return True if the kernel takes such logits; it has no backward pass."""
    if torch.is_grad_enabled() and logits.requires_grad:
        return False
    n_tokens = logits.shape[1]
    fits = n <= min(MAX_TOKENS, n_tokens) and n_tokens <= MAX_CHUNKS * GROUPS * GROUP_SIZE
    return fits and logits.stride(1) == 1 and len(logits) > 0 and available(logits.device, logits.dtype)


def top_log_probs(
    logits: Float[Tensor, "N V"], n: int, eos_id: int, suppressed: Int[Tensor, " M"]
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
    """Return the log-probabilities of each row's `n` most likely tokens, those tokens, and that of ``<eos>``."""
    n_rows, n_tokens = logits.shape
    n_chunks, block_c = -(-n_tokens // (GROUPS * GROUP_SIZE)), tile_size(n)
    logit, m, l = (logits.new_empty(n_rows, n_chunks * k, dtype=torch.float32) for k in (block_c, 1, 1))
    token = torch.empty(n_rows, n_chunks * block_c, dtype=torch.int32, device=logits.device)
    _chunk_kernel[n_rows, n_chunks](
        logits, suppressed, logit, token, m, l, logits.stride(0), n_tokens, n_chunks, n,
        N_SUPPRESSED=len(suppressed), BLOCK_C=block_c, GROUPS=GROUPS, GROUP_SIZE=GROUP_SIZE,
    )  # fmt: skip
    best_score, end = logit.new_empty(n_rows, n), logit.new_empty(n_rows)
    best_token = torch.empty(n_rows, n, dtype=torch.long, device=logits.device)
    _row_kernel[n_rows,](
        logits, logit, token, m, l, best_score, best_token, end, logits.stride(0), n_tokens, n_chunks, n, eos_id,
        BLOCK=tile_size(n_chunks * block_c), BLOCK_CHUNKS=tile_size(n_chunks), BLOCK_C=block_c,
    )  # fmt: skip
    return best_score, best_token, end


@jit
def _chunk_kernel(  # type: ignore[no-untyped-def]
    logits, suppressed, logit_out, token_out, m_out, l_out, row_stride, n_tokens, n_chunks, n,
    N_SUPPRESSED: tl.constexpr, BLOCK_C: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Find the best tokens of a chunk of a row, its maximum m, and the sum l of exponentials below it."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group, i, c = tl.arange(0, GROUPS), tl.arange(0, GROUP_SIZE), tl.arange(0, BLOCK_C)
    first = chunk * GROUPS * GROUP_SIZE
    token = first + group[:, None] * GROUP_SIZE + i[None, :]
    x = tl.load(logits + row * row_stride + token, mask=token < n_tokens, other=float("-inf")).to(tl.float32)
    m = tl.max(tl.max(x, 1), 0)
    l = tl.sum(tl.sum(tl.exp(x - m), 1), 0)
    tl.store(m_out + row * n_chunks + chunk, m)
    tl.store(l_out + row * n_chunks + chunk, tl.where(m == float("-inf"), 0.0, l))
    for k in tl.static_range(N_SUPPRESSED):
        x = tl.where(token == tl.load(suppressed + k), float("-inf"), x)
    group_max, taken, groups = tl.max(x, 1), group < 0, tl.zeros([BLOCK_C], tl.int32)
    for k in range(n):
        best = tl.max(tl.where(taken, float("-inf"), group_max), 0)
        at = tl.minimum(tl.min(tl.where((group_max == best) & ~taken, group, GROUPS), 0), GROUPS - 1)  # NaN is nowhere
        groups, taken = tl.where(c == k, at, groups), taken | (group == at)
    token = first + groups[:, None] * GROUP_SIZE + i[None, :]
    x = tl.load(logits + row * row_stride + token, mask=token < n_tokens, other=float("-inf")).to(tl.float32)
    for k in tl.static_range(N_SUPPRESSED):
        x = tl.where(token == tl.load(suppressed + k), float("-inf"), x)
    all_taken = (token < 0) | (c >= n)[:, None]
    out = (row * n_chunks + chunk) * BLOCK_C
    for k in range(n):
        best = tl.max(tl.max(tl.where(all_taken, float("-inf"), x), 1), 0)
        at = tl.min(tl.min(tl.where((x == best) & ~all_taken, token, n_tokens), 1), 0)
        tl.store(logit_out + out + k, best)
        tl.store(token_out + out + k, at)
        all_taken = all_taken | (token == at)


@jit
def _row_kernel(  # type: ignore[no-untyped-def]
    logits, logit_in, token_in, m_in, l_in, score_out, token_out, end_out, row_stride, n_tokens, n_chunks, n, eos_id,
    BLOCK: tl.constexpr, BLOCK_CHUNKS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Find the best tokens of a row among those of its chunks, and their log-probabilities."""
    row = tl.program_id(0).to(tl.int64)
    chunk, i = tl.arange(0, BLOCK_CHUNKS), tl.arange(0, BLOCK)
    m_chunk = tl.load(m_in + row * n_chunks + chunk, mask=chunk < n_chunks, other=float("-inf"))
    l_chunk = tl.load(l_in + row * n_chunks + chunk, mask=chunk < n_chunks, other=0.0)
    m = tl.max(m_chunk, 0)
    lse = m + tl.log(tl.sum(l_chunk * tl.exp(m_chunk - m), 0))
    tl.store(end_out + row, tl.load(logits + row * row_stride + eos_id).to(tl.float32) - lse)
    taken = (i >= n_chunks * BLOCK_C) | (i % BLOCK_C >= n)
    x = tl.load(logit_in + row * n_chunks * BLOCK_C + i, mask=~taken, other=float("-inf"))
    for k in range(n):
        best = tl.max(tl.where(taken, float("-inf"), x), 0)
        at = tl.min(tl.where((x == best) & ~taken, i, BLOCK), 0)
        at = tl.where(at < BLOCK, at, 0)  # NaN is nowhere
        token = tl.load(token_in + row * n_chunks * BLOCK_C + at)
        tl.store(score_out + row * n + k, best - lse)
        tl.store(token_out + row * n + k, tl.minimum(token, n_tokens - 1).to(tl.int64))
        taken = taken | (i == at)
