"""Matrix multiplication in int8 on a CPU with the weights as they are, by `torch._int_mm`.

oneDNN brings the weights into a layout of its own at every call: slower than int8_linear_packed.py but for one row of a
small matrix. It is the kernel of processors and versions of torch that lack the other's operator.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.int8_weight import (
    INT8_MAX,
    Int8Weight,
    largest_weight,
    row_maximum,
    scale_columns,
    sums_are_exact,
)

LIMITS = "int8 weights, without gradients"


@cache
def _works() -> bool:
    """Return True if this torch has the operation and it is exact on this machine."""
    try:
        return hasattr(torch, "_int_mm") and sums_are_exact(int8_linear, largest_weight())
    except RuntimeError:  # the build has no int8 product for this processor
        return False


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the product of int8 matrices runs on this machine."""
    return device.type == "cpu" and dtype == torch.float32 and _works()


def pack(weight: Int8Weight) -> Int8Weight:
    """Return the weight as it is."""
    return weight


def supports(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> bool:
    """Return True for a weight that is not packed."""
    return weight.values is not None and not torch.is_grad_enabled() and available(x.device, x.dtype)


def int8_linear(
    x: Float[Tensor, "*B D"], weight: Int8Weight, bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias`` with the rows of x quantised."""
    assert weight.values is not None
    rows = scale_columns(x.reshape(-1, x.shape[-1]), weight)
    maximum = row_maximum(rows)
    quantized = (rows / maximum).mul_(INT8_MAX).round_().to(torch.int8)
    out = torch._int_mm(quantized, weight.values.t()) * weight.step
    out = out.mul_(maximum) if bias is None else torch.addcmul(bias, out, maximum, out=out)
    return out.view(*x.shape[:-1], weight.shape[0])
