"""Matrix multiplication of a few rows with a weight matrix on a CPU, by blocks of the weights.

``x @ W.T`` reads the matrix badly when x has few rows: up to 2.5 times slower than this (docs/LOG.md). Here each block
of W is multiplied with the transposed rows: W is read once, by all cores.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

N_BLOCKS = 8
MAX_ROWS = 64

VOCABULARY = 1 << 13
"""A matrix with more outputs is a vocabulary: in blocks it would give more than the caches hold, in the wrong order."""

LIMITS = f"at most {MAX_ROWS} rows, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if it pays on this device, within its limits."""
    return device.type == "cpu"


def supports(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return True if blocks pay for so many rows and outputs."""
    if torch.is_grad_enabled() or not available(x.device, x.dtype):
        return False
    n_rows, vocabulary = x.numel() // x.shape[-1], len(weight) > VOCABULARY
    few = 1 <= n_rows <= (N_BLOCKS if vocabulary else MAX_ROWS)
    return few and (vocabulary or len(weight) % N_BLOCKS == 0)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``, a transposed view."""
    n_blocks = 1 if len(weight) % N_BLOCKS else N_BLOCKS  # one for a large odd vocabulary, as GPT-2's
    blocks = weight.view(n_blocks, -1, weight.shape[1])
    columns = x.reshape(-1, x.shape[-1]).T.expand(n_blocks, -1, -1)
    out = torch.bmm(blocks, columns) if bias is None else torch.baddbmm(bias.view(n_blocks, -1, 1), blocks, columns)
    return out.view(len(weight), -1).T.view(*x.shape[:-1], len(weight))
