"""Dropout with cheap random bits on a CPU and in graphs compiled for a GPU; all seeds come from torch's generator.

On a CPU torch draws one slow random number per element; here four elements share one (16 bits each, so the probability
is exact to 1/65536). In a graph compiled for a GPU, drawing costs more than the norm it is fused with; there the random
bits are a hash of the element's index and two numbers drawn per call (Wellons 2018, "lowbias32"). Elsewhere this is
torch's own dropout.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ELEMENTS_PER_DRAW = 4


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
        if x.device.type == "cpu":
            return x * _draw_scaled_mask(x, self.p)
        if torch.compiler.is_compiling():
            return torch.where(_hash_random_bits(x) >= _keep_threshold(self.p, 32), x * (1 / (1 - self.p)), 0.0)
        return F.dropout(x, self.p)


def _draw_scaled_mask(x: Tensor, p: float) -> Tensor:
    """Return 0 for dropped elements and 1 / (1 - p) for kept ones."""
    numbers = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // ELEMENTS_PER_DRAW),))
    bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return (bits >= _keep_threshold(p, 16)).to(x.dtype).mul_(1 / (1 - p))


def _keep_threshold(p: float, bits: int) -> int:
    """Return the smallest signed integer that is kept: a fraction `p` of all integers of that many bits is below it."""
    return min(round(p * (1 << bits)), (1 << bits) - 1) - (1 << (bits - 1))


def _hash_random_bits(x: Tensor) -> Tensor:
    """Return random bits for each element: a hash of its index and two numbers drawn once per call."""
    first, second = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=x.device)
    number = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape) ^ first
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B - 2**32)):
        number = (number ^ _logical_right_shift(number, shift)) * factor + second
    last: Tensor = number ^ _logical_right_shift(number, 16)
    return last


def _logical_right_shift(number: Tensor, shift: int) -> Tensor:
    """Shift right, filling with zeros."""
    return (number >> shift) & ((1 << (32 - shift)) - 1)
