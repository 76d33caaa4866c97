"""Products with a weight matrix, also fast where few rows meet a large matrix: writing token by token on a CPU.

There the libraries' usual ``x @ W.T`` reads the matrix badly (up to 2.5 times slower, docs/LOG.md). Cut into blocks
of rows, each multiplied with the transposed x, it is read once, by all cores. Training never comes here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

BLOCKS = 8
FEW_ROWS = 256
VERY_FEW_ROWS = 8
WIDE = 1 << 13
BLOCK_OF_WIDE = 1024
"""A matrix wider than `WIDE` (a vocabulary) gives more than the caches hold; it is put in order block by block."""


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "F D"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*B F"]:
    """``x @ weight.T + bias``; for few rows the result may be a transposed view."""
    n_rows = x.numel() // x.shape[-1]
    if torch.is_grad_enabled() or x.device.type != "cpu" or not 0 < n_rows <= FEW_ROWS:
        return F.linear(x, weight, bias)
    columns = x.reshape(n_rows, -1).T
    if len(weight) > WIDE and bias is None and n_rows > VERY_FEW_ROWS:
        out = _in_order(columns, weight)
    elif len(weight) % BLOCKS == 0:
        out = _at_once(columns, weight, bias)
    else:
        return F.linear(x, weight, bias)
    return out.view(*x.shape[:-1], len(weight))


def _at_once(columns: Float[Tensor, "D N"], weight: Float[Tensor, "F D"], bias: Tensor | None) -> Float[Tensor, "N F"]:
    blocks = weight.view(BLOCKS, -1, weight.shape[1])
    same = columns.expand(BLOCKS, -1, -1)
    out = torch.bmm(blocks, same) if bias is None else torch.baddbmm(bias.view(BLOCKS, -1, 1), blocks, same)
    return out.view(len(weight), -1).T


def _in_order(columns: Float[Tensor, "D N"], weight: Float[Tensor, "F D"]) -> Float[Tensor, "N F"]:
    out = columns.new_empty(columns.shape[1], len(weight))
    for rows, part in zip(weight.split(BLOCK_OF_WIDE), out.split(BLOCK_OF_WIDE, 1), strict=True):
        part.copy_((rows @ columns).T)
    return out


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of `product`."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B F"]:
        return product(x, self.weight, self.bias)
