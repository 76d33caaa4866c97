"""Weight matrices of int8, and the numbers that every int8 kernel and its plain definition share.

    weight   symmetric, one scale for each output:   w ~ scale[n] q[n, k],   q in -127 .. 127
    input    symmetric, one scale for each row:      x ~ max|x[m]| / 127 q[m, k]

Where a few columns of the inputs are much larger than the others, they would decide the scale of every row. They are
divided by a factor of their own, and the weights multiplied by it (SmoothQuant, Xiao et al. 2023):

    x W^T = (x / c) (W c)^T          c[k] = sqrt(max|x[:, k]| / max|W[:, k]|)

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

LEAST_SHARE = 0.05
"""Columns that are smaller than such a part of the median column count as that large."""

EXACT_COLUMNS = 1 << 10
"""So many products of int8 can be summed in float32 without rounding."""


@dataclass
class Int8Weight:
    """A quantised weight matrix: its values as they are, or packed in the layout of a kernel.

    `step` is the scale of each output times `STEP`, so that sums of products need one multiplication. `layout` names
    the kernel that a packed weight is for. `column_factor` is what inputs are multiplied by first, 1 / c.
    """

    shape: tuple[int, int]
    scale: Float[Tensor, " out"]
    step: Float[Tensor, " out"]
    values: Int8[Tensor, "out D"] | None
    packed: Any = None
    unpack: Callable[[Any], Tensor] | None = None
    layout: str = ""
    column_factor: Float[Tensor, " D"] | None = None

    def unpacked_values(self) -> Int8[Tensor, "out D"]:
        """Return the values, also of a packed weight."""
        if self.values is not None:
            return self.values
        assert self.unpack is not None, "a packed weight without a way back"
        return self.unpack(self.packed)

    def select(self, rows: Int[Tensor, " U"], values: Int8[Tensor, "out D"]) -> Int8Weight:
        """Return some rows, not packed, given the values of all."""
        shape = len(rows), self.shape[1]
        return Int8Weight(shape, self.scale[rows], self.step[rows], values[rows], column_factor=self.column_factor)


def quantize_weight(weight: Float[Tensor, "out D"], input_maximum: Float[Tensor, " D"] | None = None) -> Int8Weight:
    """Return the weight with the scale of each output that its largest magnitude needs.

    `input_maximum` is the largest magnitude of each column of its inputs, if it is known.
    """
    weight, factor = weight.detach().float(), None
    if input_maximum is not None:
        column = _balance_columns(weight, input_maximum)
        weight, factor = weight * column, 1 / column
    scale = weight.abs().amax(1).clamp_min(SMALLEST * INT8_MAX) / INT8_MAX
    values = (weight / scale[:, None]).round_().to(torch.int8)
    return Int8Weight((len(weight), weight.shape[1]), scale, scale * STEP, values, column_factor=factor)


def _balance_columns(weight: Float[Tensor, "out D"], input_maximum: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """Return the factor of each column with which its inputs and its weights are equally large."""
    inputs, weights = (
        largest.clamp_min(largest.median() * LEAST_SHARE + SMALLEST)
        for largest in (input_maximum, weight.abs().amax(0))
    )
    return (inputs / weights).sqrt()


def scale_columns(rows: Float[Tensor, "M D"], weight: Int8Weight) -> Float[Tensor, "M D"]:
    """Return the inputs of a weight as they are quantised."""
    return rows if weight.column_factor is None else rows * weight.column_factor


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
