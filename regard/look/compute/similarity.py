"""The similarity a head has learned: the bilinear form of its queries and keys."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class HeadSimilarity(NamedTuple):
    """The form ``score(x, y) = x M y`` with ``M = W_Q W_K^T``: its symmetric and antisymmetric part and eigenvalues.

    `eigenvalues` are those of the symmetric part, largest first: M is positive semi-definite, ``x M x >= 0`` for
    every x, iff none of them is negative (beyond rounding).
    """

    form: Float[Tensor, "D D"]
    symmetric: Float[Tensor, "D D"]
    antisymmetric: Float[Tensor, "D D"]
    eigenvalues: Float[Tensor, " D"]
    is_positive_semidefinite: bool

    @property
    def symmetric_fraction(self) -> float:
        """Return the fraction of M's squared norm that is symmetric; about 1/2 for a random matrix."""
        return float(self.symmetric.square().sum() / self.form.square().sum().clamp(min=1e-300))


def compute_similarity(query_weight: Float[Tensor, "E D"], key_weight: Float[Tensor, "E D"]) -> HeadSimilarity:
    """Compute the similarity from a head's rows of the query and key projections, as `torch.nn.Linear` stores them."""
    form = query_weight.double().mT @ key_weight.double()
    symmetric, antisymmetric = (form + form.mT) / 2, (form - form.mT) / 2
    eigenvalues = torch.linalg.eigvalsh(symmetric).flip(-1)
    least = -torch.finfo(query_weight.dtype).eps * len(form) * float(eigenvalues.abs().max())
    return HeadSimilarity(form, symmetric, antisymmetric, eigenvalues, bool((eigenvalues >= least).all()))
