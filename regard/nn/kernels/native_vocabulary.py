"""Matrix multiplication with a vocabulary that stays the same, on a CPU, in C: the matrix as it is, without a copy."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import describe_float32, fits_float32, multiply
from regard.nn.kernels.workspace import PackedWeight

LIMITS = "without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, dtype)


def supports(x: Tensor, weight: Tensor, bias: Tensor | None, packed: PackedWeight) -> bool:
    """Return True for matrices whose rows fill vectors."""
    return not torch.is_grad_enabled() and available(weight.device, weight.dtype) and fits_float32(weight, x, bias)


def prepacked_linear(
    x: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None, packed: PackedWeight
) -> Float[Tensor, "N V"]:
    """Return ``x @ weight.T + bias``; nothing is packed."""
    return multiply(describe_float32(weight, bias), x)
