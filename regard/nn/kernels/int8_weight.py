"""Weight matrices of int8, and the numbers that every int8 kernel and its plain definition share.

    weight   symmetric, one scale for each output:   w ~ scale[n] q[n, k],   q in -127 .. 127
    input    symmetric, one scale for each row:      x ~ max|x[m]| / 127 q[m, k]

A row is quantised by itself, as it is multiplied, so its result does not depend on the other rows of a batch. Products
of int8 are summed in int32 without rounding, so all kernels give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

INT8_MAX = 127
STEP = 1 / INT8_MAX
"""The step of a row that was divided by its largest magnitude."""

SMALLEST = torch.finfo(torch.float32).tiny
"""Stands for the largest magnitude of a row of zeros."""

EXACT_COLUMNS = 1 << 10
"""So many products of int8 can be summed in float32 without rounding."""


@dataclass
class Int8Weight:
    """A quantised weight matrix: its values as they are, or packed in the layout of a kernel.

    `step` is the scale of each output times `STEP`, so that sums of products need one multiplication.
    """

    shape: tuple[int, int]
    scale: Float[Tensor, " out"]
    step: Float[Tensor, " out"]
    values: Int8[Tensor, "out D"] | None
    packed: Any = None
    unpack: Callable[[Any], Tensor] | None = None

    def unpacked_values(self) -> Int8[Tensor, "out D"]:
        """Return the values, also of a packed weight."""
        if self.values is not None:
            return self.values
        assert self.unpack is not None, "a packed weight without a way back"
        return self.unpack(self.packed)

    def select(self, rows: Int[Tensor, " U"], values: Int8[Tensor, "out D"]) -> Int8Weight:
        """Return some rows, not packed, given the values of all."""
        return Int8Weight((len(rows), self.shape[1]), self.scale[rows], self.step[rows], values[rows])


def quantize_weight(weight: Float[Tensor, "out D"]) -> Int8Weight:
    """Return the weight with the scale of each output that its largest magnitude needs."""
    weight = weight.detach().float()
    scale = weight.abs().amax(1).clamp_min(SMALLEST * INT8_MAX) / INT8_MAX
    values = (weight / scale[:, None]).round_().to(torch.int8)
    return Int8Weight((len(weight), weight.shape[1]), scale, scale * STEP, values)


def row_maximum(x: Float[Tensor, "M D"]) -> Float[Tensor, "M 1"]:
    """Return the largest magnitude of each row, never 0."""
    return x.abs().amax(-1, keepdim=True).clamp_min_(SMALLEST)


def sums_are_exact(kernel: Callable[[Tensor, Int8Weight, Tensor | None], Tensor], weight: Int8Weight) -> bool:
    """Return True if a kernel sums the largest products as they are.

    Before VNNI the instructions of x86 add pairs of products in 16 bits, where the largest saturate.
    """
    x = torch.ones(1, weight.shape[1])
    return bool((kernel(x, weight, None) == weight.scale * INT8_MAX * weight.shape[1]).all())


def largest_weight() -> Int8Weight:
    """Return a weight whose products with a row of ones are the largest there are, and scales that stay exact."""
    size = 64
    ones = torch.ones(size)
    values = torch.full((size, size), INT8_MAX, dtype=torch.int8)
    return Int8Weight((size, size), ones, ones * STEP, values)
