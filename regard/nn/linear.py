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
FEW_ROWS_OUT = 64
"""For a result wider than `WIDE`: putting many rows of it in order again costs what was gained."""
WIDE = 1 << 13


def product(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "F D"], bias: Float[Tensor, " F"] | None = None
) -> Float[Tensor, "*B F"]:
    """``x @ weight.T + bias``; for few rows the result may be a transposed view."""
    if torch.is_grad_enabled() or x.device.type != "cpu" or not _pays(x.numel() // x.shape[-1], weight):
        return F.linear(x, weight, bias)
    blocks = weight.view(BLOCKS, -1, weight.shape[1])
    columns = x.reshape(-1, x.shape[-1]).T.expand(BLOCKS, -1, -1)
    out = torch.bmm(blocks, columns) if bias is None else torch.baddbmm(bias.view(BLOCKS, -1, 1), blocks, columns)
    return out.view(len(weight), -1).T.view(*x.shape[:-1], len(weight))


def _pays(n_rows: int, weight: Tensor) -> bool:
    if len(weight) % BLOCKS:
        return False
    return n_rows <= (FEW_ROWS_OUT if len(weight) > WIDE else FEW_ROWS)


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of `product`."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B F"]:
        return product(x, self.weight, self.bias)
