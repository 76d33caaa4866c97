"""GELU with tanh from one exponential, for half precision in graphs compiled for a GPU.

``1 + tanh(u)`` is ``2 sigmoid(2 u)``: torch's tanh takes longer there than to read and write the numbers. It is no
kernel of its own; the compiler fuses the formula with what is around it.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION

LIMITS = "compiled graphs"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the formula pays on this device in this precision, within its limits."""
    return dtype in HALF_PRECISION and device.type == "cuda"


def supports(x: Tensor) -> bool:
    """Return True if x is in a graph that is being compiled for a GPU."""
    return torch.compiler.is_compiling() and available(x.device, x.dtype)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``; what is compiled rounds at the end only."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
