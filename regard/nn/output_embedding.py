"""The output embedding: hidden states to logits over a vocabulary, for one call, for many, or straight to a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.linear_layers import PrepackedLinear
from regard.nn.loss import Loss, linear_cross_entropy

OutputProjection = Callable[[Tensor], Tensor]
"""Hidden states (N, D) to logits (N, V), for many calls."""

RowProjector = Callable[[Tensor], OutputProjection]
"""Rows of the matrix, by number, to the projection that has them alone."""


class OutputEmbedding(nn.Embedding):
    """The matrix whose rows hidden states are compared with; often tied to an input embedding."""

    def projection(self, bias: Float[Tensor, " V"] | None = None) -> OutputProjection:
        """Return a function of hidden states for many calls, such as those of decoding."""
        return PrepackedLinear(self.weight, bias)

    def make_row_projector(self, bias: Float[Tensor, " V"] | None = None) -> RowProjector:
        """Return a function that gives the projection to some rows of the matrix."""
        return lambda rows: PrepackedLinear(self.weight[rows], None if bias is None else bias[rows])

    def logits(self, hidden: Float[Tensor, "*B D"], bias: Float[Tensor, " V"] | None = None) -> Float[Tensor, "*B V"]:
        """Return ``hidden @ weight.T + bias``."""
        return F.linear(hidden, self.weight, bias)

    def cross_entropy(
        self, hidden: Float[Tensor, "*B D"], target: Int[Tensor, "*B"], bias: Float[Tensor, " V"] | None = None
    ) -> Loss:
        """Return the cross-entropy of the targets without materialising the logits of the whole batch."""
        return linear_cross_entropy(hidden, self.weight, target, bias=bias)
