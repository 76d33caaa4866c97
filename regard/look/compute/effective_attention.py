"""Effective attention and identifiability (SPEC 8.1, 8.2; Brunner et al. 2020).

A head adds ``A T`` to its output: weights A over the keys, times ``T = V W_O``, its values through its slice of the
output projection. Where a row of A sees more keys than T has rank, other weights give the same output:

    a T = (a + n) T      for every n with n T = 0, the left null space of T

Effective attention is what of the row the output can tell: its projection onto the column space of T. Each row has
its own visible keys; the others take no part, and have weight 0 exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class AttentionIdentifiability(NamedTuple):
    """Of each head and row: keys it sees, rank of what they carry, dimensions and share of the norm that do not show.

    The share is ``|a - effective a| / |a|``, lengths of vectors.
    """

    keys: Int[Tensor, "*B Q"]
    rank: Int[Tensor, "*B Q"]
    null: Int[Tensor, "*B Q"]
    share: Float[Tensor, "*B Q"]


def compact_head_values(
    value: Float[Tensor, "*B K E"], output_weight: Float[Tensor, "*H D E"], *, keep_row_sums: bool = False
) -> Float[Tensor, "*B K F"]:
    """T in as few columns as it has dimensions: same singular values, same column space.

    ``W_O^T = Q R`` has orthonormal Q, so ``V W_O = (V R^T) Q^T`` and ``V R^T`` will do. A column of ones beside it
    keeps the sum of each row. In float64, for the rank of what is nearly singular.
    """
    triangle: Tensor = torch.linalg.qr(output_weight.double(), mode="r").R
    short = value.double() @ triangle.mT
    if keep_row_sums:
        short = torch.cat((short, torch.ones_like(short[..., :1])), -1)
    return short


def effective_attention(
    weights: Float[Tensor, "*B Q K"],
    transformed_values: Float[Tensor, "*B K F"] | Float[Tensor, "*B Q K F"],
    mask: Bool[Tensor, "Q K"],
    d_model: int,
) -> tuple[Float[Tensor, "*B Q K"], AttentionIdentifiability]:
    """The part of each row of the weights that shows in the output, given what `compact` made of the values.

    Where positions are added to the values, every query has values of its own. Works in float64; a singular value
    counts where it is above ``eps max(keys, d_model)`` of the largest, eps that of the weights' own precision.
    """
    exact, by_query = weights.double(), transformed_values.ndim > weights.ndim
    patterns, pattern_of_row = mask.unique(dim=0, return_inverse=True)
    effective = torch.zeros_like(exact)
    rank = torch.zeros(weights.shape[:-1], dtype=torch.long, device=weights.device)
    for number, pattern in enumerate(patterns):
        rows, keys = (pattern_of_row == number).nonzero().squeeze(-1), pattern.nonzero().squeeze(-1)
        if len(keys):
            theirs = (
                transformed_values[..., rows[:, None], keys, :] if by_query else transformed_values[..., None, keys, :]
            )
            least = torch.finfo(weights.dtype).eps * max(len(keys), d_model)
            basis, ranks = _column_space_basis(theirs.double(), least)  # (*B, rows or 1, keys, r)
            seen = exact[..., rows[:, None], keys]
            if by_query:
                effective[..., rows[:, None], keys] = (seen[..., None, :] @ basis @ basis.mT).squeeze(-2)
            else:
                effective[..., rows[:, None], keys] = seen @ (basis @ basis.mT).squeeze(-3)
            rank[..., rows] = ranks
    count = mask.sum(-1).expand_as(rank)
    apart, whole = ((exact - effective) * mask).norm(dim=-1), (exact * mask).norm(dim=-1)
    share = torch.where(whole > 0, apart / whole, 0.0)
    return effective.to(weights.dtype), AttentionIdentifiability(count, rank, count - rank, share.to(weights.dtype))


def _column_space_basis(
    transformed_values: Float[Tensor, "*B K F"], tolerance: float
) -> tuple[Float[Tensor, "*B K r"], Int[Tensor, "*B"]]:
    """An orthonormal basis, columns beyond the rank 0, and the rank."""
    left, singular, _ = torch.linalg.svd(transformed_values, full_matrices=False)
    counts = singular > tolerance * singular[..., :1]
    return left * counts[..., None, :], counts.sum(-1)
