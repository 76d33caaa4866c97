"""Matrix multiplication in int8 on a CPU with packed weights, by the operators of torch's quantised layers.

FBGEMM, or oneDNN where the processor has VNNI, multiplies with weights it has packed beforehand. The operator takes one
scale for all rows, so rows are divided by their largest magnitude before and multiplied by it afterwards.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.nn.kernels.int8_weight import STEP, Int8Weight, largest_weight, row_maximum, scale_columns, sums_are_exact

ZERO_POINT = 128
"""The operator's inputs are unsigned."""

ENGINES = ("x86", "fbgemm")
"""Engines of torch that have the operator."""

LIMITS = "int8 weights, packed, without gradients"


@cache
def _works() -> bool:
    """Return True if this torch has the operator and it is exact on this machine."""
    if torch.backends.quantized.engine not in ENGINES:
        return False
    try:
        return sums_are_exact(int8_linear, pack(largest_weight()))
    except (AttributeError, RuntimeError):  # the operator is gone, or not for this processor
        return False


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the operator runs on this machine."""
    return device.type == "cpu" and dtype == torch.float32 and _works()


def pack(weight: Int8Weight) -> Int8Weight:
    """Return the weight in the operator's layout."""
    with warnings.catch_warnings():  # quantised tensors are deprecated, the operators on packed weights are not
        warnings.simplefilter("ignore", UserWarning)
        zeros = torch.zeros(weight.shape[0], dtype=torch.int32)
        quantized = torch._make_per_channel_quantized_tensor(weight.unpacked_values(), weight.scale, zeros, 0)
        packed = torch.ops.quantized.linear_prepack(quantized, None)
    return replace(weight, values=None, packed=packed, unpack=_unpack, layout=__name__)


def _unpack(packed: Any) -> Int8[Tensor, "out D"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        values: Tensor = torch.ops.quantized.linear_unpack(packed)[0].int_repr()
    return values


def supports(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> bool:
    """Return True for a weight that is packed."""
    return weight.layout == __name__ and not torch.is_grad_enabled() and available(x.device, x.dtype)


def int8_linear(
    x: Float[Tensor, "*B D"], weight: Int8Weight, bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias`` with the rows of x quantised."""
    rows = scale_columns(x.reshape(-1, x.shape[-1]), weight)
    maximum = row_maximum(rows)
    multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    out: Tensor = multiply(rows / maximum, STEP, ZERO_POINT, weight.packed)
    out = out.mul_(maximum) if bias is None else torch.addcmul(bias, out, maximum, out=out)
    return out.view(*x.shape[:-1], weight.shape[0])
