"""Products with a weight matrix, also fast where few rows meet a large matrix: writing token by token.

On a CPU the usual ``x @ W.T`` reads the matrix badly there: up to 2.5 times slower than what is done here
(docs/LOG.md). On a GPU it leaves most of the chip idle: nn/few_rows.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn import few_rows
from regard.nn.few_rows import VOCABULARY

N_BLOCKS = 8
SMALL_BATCH = range(1, 65)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None = None
) -> Float[Tensor, "*B out"]:
    """``x @ weight.T + bias``; for few rows, and outside of training, the result may be a transposed view."""
    if few_rows.usable(x, weight):
        return few_rows.product(x, weight, bias)
    n_rows = x.numel() // x.shape[-1]
    # In blocks a vocabulary would give more than the caches hold, in the wrong order.
    few = n_rows in SMALL_BATCH and (n_rows <= N_BLOCKS or len(weight) <= VOCABULARY)
    n_blocks = 1 if len(weight) % N_BLOCKS else N_BLOCKS  # one for a large odd vocabulary, as GPT-2's
    if torch.is_grad_enabled() or x.device.type != "cpu" or not few or (n_blocks == 1 and len(weight) <= VOCABULARY):
        return F.linear(x, weight, bias)
    blocks = weight.view(n_blocks, -1, weight.shape[1])  # each times the transposed rows: read once, by all cores
    columns = x.reshape(n_rows, -1).T.expand(n_blocks, -1, -1)
    out = torch.bmm(blocks, columns) if bias is None else torch.baddbmm(bias.view(n_blocks, -1, 1), blocks, columns)
    return out.view(len(weight), -1).T.view(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of `product`."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B out"]:
        return linear(x, self.weight, self.bias)


class PrepackedLinear:
    """``x @ weight.T + bias`` again and again with a vocabulary that stays as it is meanwhile.

    On a CPU, from the first time that more than a few rows come, by a copy in the layout that oneDNN, which torch
    brings along for most CPUs, multiplies fastest with. The operators are those that torch's compiler uses.
    """

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._packed_weight: Tensor | None = None

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        if len(x) <= N_BLOCKS or not self._can_pack():
            return linear(x, self.weight, self.bias).contiguous()
        if self._packed_weight is None:
            self._packed_weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), len(x))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), self._packed_weight, self.bias, "none", [], "")
        return out

    def _can_pack(self) -> bool:
        plain = self.weight.device.type == "cpu" and self.weight.dtype == torch.float32
        return plain and torch.backends.mkldnn.is_available() and not torch.is_grad_enabled()
