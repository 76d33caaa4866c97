"""The compared layers, their operation counts, and the longest chain of sequential matrix multiplications in each.

Vaswani et al. 2017, table 1, counts ``n^2 d`` for self-attention and ``n d^2`` for recurrence. The first is of scores
and weighted sums alone: a layer also has projections and a feed-forward network, which are ``n d^2`` as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.nn import LSTM, AttentionMask, EncoderLayer, FeedForward, MultiHeadAttention, PostNorm, force_unfused

WIDTH_PER_HEAD = 64

MATMUL_NODE = re.compile("(Mm|Addmm|Bmm|Baddbmm)Backward")
"""Names of matrix multiplications in the autograd graph."""


def _full_mask(x: Float[Tensor, "B T D"]) -> AttentionMask:
    """Return a mask in which every token attends to every other one."""
    position = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    return AttentionMask(position, position)


class AttentionOnly(nn.Module):
    """``softmax(Q K^T / sqrt(d_k)) V`` in every head, without projections: Q, K and V are the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head_shape = (max(1, width // WIDTH_PER_HEAD), min(width, WIDTH_PER_HEAD))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        by_head = x.unflatten(-1, self.head_shape).transpose(1, 2)
        return F.scaled_dot_product_attention(by_head, by_head, by_head).transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention with its projections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, max(1, width // WIDTH_PER_HEAD))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        out: Tensor = self.attention(x, _full_mask(x))
        return out


class FullEncoderLayer(nn.Module):
    """Self-attention and the feed-forward network, each with its residual connection and norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        attention = MultiHeadAttention(width, max(1, width // WIDTH_PER_HEAD))
        self.layer = EncoderLayer(attention, FeedForward(width, 4 * width, F.relu), partial(PostNorm, width, 0.0))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        out: Tensor = self.layer(x, _full_mask(x))
        return out


class LSTMLayer(nn.Module):
    """One forward LSTM: torch's own, fused."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = LSTM(width, width)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        out: Tensor = self.recurrence(x)[0]
        return out


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "attention alone": AttentionOnly,
    "self-attention": SelfAttention,
    "encoder layer": FullEncoderLayer,
    "LSTM": LSTMLayer,
}

OPERATION_COUNTS: dict[str, tuple[int, int]] = {
    "attention alone": (4, 0),
    "self-attention": (4, 8),
    "encoder layer": (4, 24),
    "LSTM": (0, 16),
}
"""Coefficients of ``n^2 d`` and ``n d^2`` in the multiplications and additions of a forward pass."""

COMPLEXITY = {
    "attention alone": "n² d",
    "self-attention": "n² d + n d²",
    "encoder layer": "n² d + n d²",
    "LSTM": "n d²",
}


def count_operations(layer: str, length: int, width: int) -> int:
    """Return the multiplications and additions of one forward pass."""
    quadratic, linear = OPERATION_COUNTS[layer]
    return quadratic * length**2 * width + linear * length * width**2


def count_sequential_matmuls(layer: str, length: int, width: int = 8) -> int:
    """Return the number of sequential matrix multiplications of an unrolled forward pass."""
    module = LAYERS[layer](width)
    x = torch.zeros(1, length, width, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH), force_unfused(module):
        return _longest_matmul_chain(module(x).grad_fn)


def _longest_matmul_chain(root: Node | None) -> int:
    """Return the largest number of matrix multiplications on any path of the autograd graph."""
    longest: dict[Node, int] = {}
    stack = [root] if root is not None else []
    while stack:
        node = stack[-1]
        inputs = [other for other, _ in node.next_functions if other is not None]
        unknown = [other for other in inputs if other not in longest]
        if unknown:
            stack += unknown
        else:
            own = int(MATMUL_NODE.match(node.name()) is not None)
            longest[node] = own + max((longest[other] for other in inputs), default=0)
            stack.pop()
    return longest[root] if root is not None else 0
