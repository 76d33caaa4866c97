"""Matrix multiplication with a vocabulary that stays the same, on a CPU: by a copy of it in oneDNN's own layout.

oneDNN, which torch brings along for most CPUs, multiplies fastest with weights it has reordered. The operators are
those that torch's compiler uses. The copy is made once and belongs to the caller.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.workspace import PackedWeight

MIN_ROWS = 9
"""Fewer rows are faster without (small_batch_gemm_cpu.py)."""

LIMITS = f"vocabularies, at least {MIN_ROWS} rows, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if oneDNN is there and this precision is its."""
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()


def supports(x: Tensor, weight: Tensor, bias: Tensor | None, packed: PackedWeight) -> bool:
    """Return True if a packed copy pays for so many rows."""
    return len(x) >= MIN_ROWS and not torch.is_grad_enabled() and available(weight.device, weight.dtype)


def prepacked_linear(
    x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None, packed: PackedWeight
) -> Float[Tensor, "N V"]:
    """Return ``x @ weight.T + bias``; the first call puts the packed weight into `packed`."""
    if packed.copy is None:
        packed.copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), len(x))
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), packed.copy, bias, "none", [], "")
    return out
