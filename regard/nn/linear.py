"""Products with a weight matrix, also fast where few rows meet a large matrix: writing token by token on a CPU.

There the libraries' usual ``x @ W.T`` reads the matrix badly (up to 2.5 times slower, docs/LOG.md). Cut into a few
blocks of rows, each multiplied with the transposed x, it is read once, by all cores. Training never comes here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

BLOCKS = 8
FEW_ROWS = 256


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "F D"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*B F"]:
    """``x @ weight.T + bias``."""
    n_rows = x.numel() // x.shape[-1]
    few = 1 < n_rows <= FEW_ROWS or weight.numel() > 1 << 22
    if torch.is_grad_enabled() or x.device.type != "cpu" or not few or n_rows > FEW_ROWS or len(weight) % BLOCKS:
        return F.linear(x, weight, bias)
    blocks = weight.view(BLOCKS, -1, weight.shape[1])
    columns = x.reshape(n_rows, -1).T.expand(BLOCKS, -1, -1)
    out = torch.bmm(blocks, columns).view(len(weight), n_rows).T.contiguous()
    return (out if bias is None else out.add_(bias)).view(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of `product`."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B F"]:
        return product(x, self.weight, self.bias)
