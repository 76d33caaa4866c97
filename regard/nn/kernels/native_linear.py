"""Matrix multiplication in float32 on a CPU, in C, with the weights as they are (native/linear_float32.c).

A row of the result is the same beside any other rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import describe_float32, fits_float32, multiply

LIMITS = "widths that fill vectors, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, dtype)


def supports(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return True for matrices whose rows fill vectors."""
    return not torch.is_grad_enabled() and available(weight.device, weight.dtype) and fits_float32(weight, x, bias)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``."""
    bias = None if bias is None else bias.contiguous()
    return multiply(describe_float32(weight, bias), x)
