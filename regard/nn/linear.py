"""Products with a weight matrix, also fast where few rows meet a large matrix: writing token by token on a CPU.

There the usual ``x @ W.T`` reads the matrix badly: up to 2.5 times slower than what is done here (docs/LOG.md).
Training never comes here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

BLOCKS = 8
FEW_ROWS = range(1, 65)
WIDE = 1 << 13
FEW_ROWS_OF_WIDE = range(1, 257)
"""A matrix wider than `WIDE` is a vocabulary."""


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "F D"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*B F"]:
    """``x @ weight.T + bias``; for few rows the result may be a transposed view."""
    n_rows, wide = x.numel() // x.shape[-1], len(weight) > WIDE
    few = n_rows in (FEW_ROWS_OF_WIDE if wide else FEW_ROWS)
    if torch.is_grad_enabled() or x.device.type != "cpu" or not few:
        return F.linear(x, weight, bias)
    rows = x.reshape(n_rows, -1)
    out: Tensor
    if wide and _can_pack(weight):
        out = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), _packed(weight), bias, "none", [], "")
    elif len(weight) % BLOCKS == 0:
        out = _in_blocks(rows, weight, bias)
    else:
        return F.linear(x, weight, bias)
    return out.view(*x.shape[:-1], len(weight))


def _in_blocks(rows: Float[Tensor, "N D"], weight: Float[Tensor, "F D"], bias: Tensor | None) -> Float[Tensor, "N F"]:
    """Each block of the matrix times the transposed rows: read once, by all cores."""
    blocks, columns = weight.view(BLOCKS, -1, weight.shape[1]), rows.T.expand(BLOCKS, -1, -1)
    out = torch.bmm(blocks, columns) if bias is None else torch.baddbmm(bias.view(BLOCKS, -1, 1), blocks, columns)
    return out.view(len(weight), -1).T


_copies = WeakIdKeyDictionary()


def _can_pack(weight: Tensor) -> bool:
    """Whether oneDNN is there, which torch brings along for most CPUs; the operators are those of its compiler."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return known and weight.dtype == torch.float32 and not weight.is_inference()


def _packed(weight: Tensor) -> Tensor:
    """A copy in the layout the library multiplies fastest with, kept until the weight changes or goes."""
    version, copy = _copies.get(weight, (None, None))
    if copy is None or version != weight._version:
        copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), FEW_ROWS[-1])
        _copies[weight] = weight._version, copy
    packed: Tensor = copy
    return packed


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of `product`."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B F"]:
        return product(x, self.weight, self.bias)
