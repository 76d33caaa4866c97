"""Matrix multiplication in int8 on a CPU, in C, with packed weights (native/linear_int8.c).

It needs instructions that sum products of int8 (AVX-512 VNNI or AVX-VNNI). Rows are quantised as they are multiplied.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int8
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.int8_weight import Int8Weight
from regard.nn.kernels.native_library import describe_int8, multiply

OFFSET = 128
"""Weights are stored as unsigned bytes."""

IS_FASTEST = True
"""It was for every shape that was measured, and decoder layers in C need weights in its layout."""

LIMITS = "int8 weights, packed, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine, for a processor that has the instructions."""
    return native_library.is_loaded(device, dtype) and bool(native_library.library().regard_int8_panel())


def pack(weight: Int8Weight) -> Int8Weight:
    """Return the weight in panels of outputs, four inputs of each side by side."""
    values = weight.unpacked_values()
    (n_out, n_in), panel = weight.shape, native_library.library().regard_int8_panel()
    padded = F.pad(values.short() + OFFSET, (0, -n_in % 4, 0, -n_out % panel), value=OFFSET).to(torch.uint8)
    packed = padded.unflatten(0, (-1, panel)).unflatten(-1, (-1, 4)).transpose(1, 2).contiguous()

    def unpack(packed: Tensor) -> Int8[Tensor, "out D"]:
        rows = packed.transpose(1, 2).flatten(0, 1).flatten(1)[:n_out, :n_in]
        return (rows.short() - OFFSET).to(torch.int8)

    return replace(weight, values=None, packed=packed, unpack=unpack, layout=__name__)


def supports(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> bool:
    """Return True for a weight that is packed here."""
    return weight.layout == __name__ and not torch.is_grad_enabled() and available(x.device, x.dtype)


def int8_linear(
    x: Float[Tensor, "*B D"], weight: Int8Weight, bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias`` with the rows of x quantised."""
    return multiply(describe_int8(weight, bias), x)
