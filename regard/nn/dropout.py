"""Dropout that costs little on a CPU too.

torch draws one slow random number for each element there; four elements share one here (16 bits each, so the
probability is exact to 1/65536). On other devices this is torch's own. Both draw from torch's default generator.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

PER_NUMBER = 4


class Dropout(nn.Module):
    """Zero each element with probability `p` while training, and scale the others up to keep the mean."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        return x * _kept(x, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)


def _kept(x: Tensor, p: float) -> Tensor:
    """0 where an element is dropped, 1 / (1 - p) where it is kept."""
    numbers = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // PER_NUMBER),))
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return (bits >= round(p * 2**16) - 2**15).to(x.dtype).mul_(1 / (1 - p))
