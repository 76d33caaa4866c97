"""The most likely next tokens of each row of logits, with their log-probabilities, in Triton on a CUDA device.

A search needs the best few of a vocabulary: torch computes the log-probabilities of all, writes them and sorts. Here
the logits are read once, by a kernel that keeps of every 32 tokens their maximum and the sum of their exponentials.
The best tokens of a row all lie in the groups with the highest maxima, so a second kernel looks at those alone:

    row     [ 3 1 4 ] [ 1 5 9 ] [ 2 6 5 ] [ 3 5 8 ]      best 2 of the row: look at the best 2 groups
                 4         9         6         8
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, jit, runs_on, tile_size, tl

GROUPS, GROUP_SIZE = 64, 32
"""Tokens of a group, and groups that a program of the first kernel goes through."""

MAX_TOKENS, MAX_GROUPS = 64, 8192
"""The most tokens of a row that are returned, and the most groups of a vocabulary."""

GROUPS_PER_WARP = 1024
"""Groups among which one warp finds the best: it need not wait for others."""

LIMITS = f"at most {MAX_TOKENS} tokens of a vocabulary of at most {MAX_GROUPS * GROUP_SIZE:,}, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in (torch.float32, *HALF_PRECISION) and runs_on(device)


def supports(logits: Tensor, n: int, eos_id: int, suppressed: Tensor) -> bool:
    """Return True if the kernel takes such logits; it has no backward pass."""
    if torch.is_grad_enabled() and logits.requires_grad:
        return False
    n_tokens = logits.shape[1]
    fits = n <= min(MAX_TOKENS, n_tokens) and n_tokens <= MAX_GROUPS * GROUP_SIZE
    return fits and logits.stride(1) == 1 and len(logits) > 0 and available(logits.device, logits.dtype)


def top_log_probs(
    logits: Float[Tensor, "N V"], n: int, eos_id: int, suppressed: Int[Tensor, " M"]
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
    """Return the log-probabilities of each row's `n` most likely tokens, those tokens, and that of ``<eos>``."""
    n_rows, n_tokens = logits.shape
    n_groups = -(-n_tokens // GROUP_SIZE)
    m, l = (logits.new_empty(n_rows, n_groups, dtype=torch.float32) for _ in range(2))
    _group_kernel[n_rows, -(-n_groups // GROUPS)](
        logits, suppressed, m, l, logits.stride(0), n_tokens, n_groups,
        N_SUPPRESSED=len(suppressed), GROUPS=GROUPS, GROUP_SIZE=GROUP_SIZE,
    )  # fmt: skip
    score, end = m.new_empty(n_rows, n), m.new_empty(n_rows)
    token = torch.empty(n_rows, n, dtype=torch.long, device=logits.device)
    block = tile_size(n_groups)
    _row_kernel[n_rows,](
        logits, suppressed, m, l, score, token, end, logits.stride(0), n_tokens, n_groups, n, eos_id,
        N_SUPPRESSED=len(suppressed), BLOCK=block, BLOCK_C=tile_size(n), GROUP_SIZE=GROUP_SIZE,
        num_warps=max(1, min(block // GROUPS_PER_WARP, 8)),
    )  # fmt: skip
    return score, token, end


@jit
def _group_kernel(  # type: ignore[no-untyped-def]
    logits, suppressed, m_out, l_out, row_stride, n_tokens, n_groups,
    N_SUPPRESSED: tl.constexpr, GROUPS: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Find of each group its maximum m, and the sum l of exponentials below it, without suppressed tokens."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    token = group[:, None] * GROUP_SIZE + tl.arange(0, GROUP_SIZE)[None, :]
    x = tl.load(logits + row * row_stride + token, mask=token < n_tokens, other=float("-inf")).to(tl.float32)
    for k in tl.static_range(N_SUPPRESSED):
        x = tl.where(token == tl.load(suppressed + k), float("-inf"), x)
    m = tl.max(x, 1)
    l = tl.sum(tl.exp(x - tl.where(m == float("-inf"), 0.0, m)[:, None]), 1)
    tl.store(m_out + row * n_groups + group, m, mask=group < n_groups)
    tl.store(l_out + row * n_groups + group, l, mask=group < n_groups)


@jit
def _row_kernel(  # type: ignore[no-untyped-def]
    logits, suppressed, m_in, l_in, score_out, token_out, end_out, row_stride, n_tokens, n_groups, n, eos_id,
    N_SUPPRESSED: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Find the best groups of a row, the best tokens in them, and their log-probabilities."""
    row = tl.program_id(0).to(tl.int64)
    group, i, c = tl.arange(0, BLOCK), tl.arange(0, GROUP_SIZE), tl.arange(0, BLOCK_C)
    group_max = tl.load(m_in + row * n_groups + group, mask=group < n_groups, other=float("-inf"))
    l = tl.load(l_in + row * n_groups + group, mask=group < n_groups, other=0.0)
    m = tl.max(group_max, 0)
    for k in tl.static_range(N_SUPPRESSED):
        m = tl.maximum(m, tl.load(logits + row * row_stride + tl.load(suppressed + k)).to(tl.float32))
    total = tl.sum(l * tl.exp(group_max - m), 0)
    for k in tl.static_range(N_SUPPRESSED):
        total += tl.exp(tl.load(logits + row * row_stride + tl.load(suppressed + k)).to(tl.float32) - m)
    lse = m + tl.log(total)
    tl.store(end_out + row, tl.load(logits + row * row_stride + eos_id).to(tl.float32) - lse)
    taken, groups = group >= n_groups, tl.full([BLOCK_C], 0, tl.int32)
    for k in range(n):
        best = tl.max(tl.where(taken, float("-inf"), group_max), 0)
        at = tl.min(tl.where((group_max == best) & ~taken, group, n_groups), 0)  # NaN is nowhere
        groups, taken = tl.where(c == k, at, groups), taken | (group == at)
    token = groups[:, None] * GROUP_SIZE + i[None, :]
    taken_tokens = (token >= n_tokens) | (c >= n)[:, None]
    x = tl.load(logits + row * row_stride + token, mask=~taken_tokens, other=float("-inf")).to(tl.float32)
    for k in tl.static_range(N_SUPPRESSED):
        x = tl.where(token == tl.load(suppressed + k), float("-inf"), x)
    for k in range(n):
        best = tl.max(tl.max(tl.where(taken_tokens, float("-inf"), x), 1), 0)
        at = tl.min(tl.min(tl.where((x == best) & ~taken_tokens, token, n_tokens), 1), 0)
        tl.store(score_out + row * n + k, best - lse)
        tl.store(token_out + row * n + k, tl.minimum(at, n_tokens - 1).to(tl.int64))
        taken_tokens = taken_tokens | (token == at)
