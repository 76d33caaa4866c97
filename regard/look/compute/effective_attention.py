"""Effective attention and identifiability (Brunner et al. 2020, sections 3 and 4).

A head adds ``A T`` to its output: weights A over the keys, times ``T = V W_O``, its values through its slice of the
output projection. Where a row of A has more keys than the rank of T, other weights give the same output:

    a T = (a + n) T      for every n with n T = 0, the left null space of T

Effective attention is the part of the row that affects the output: its projection onto the column space of T. Each row
has its own unmasked keys; masked keys are left out and have weight 0 exactly.

look/views/attention_views.py makes a view of it, drawn by look/render/page/attention.js and render/plots/heat_maps.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class AttentionIdentifiability(NamedTuple):
    """Per head and row: visible keys, rank of T, dimensions of the null space, fraction of the norm in it.

    The fraction (`share`) is ``|a - effective a| / |a|``.
    """

    keys: Int[Tensor, "*B Q"]
    rank: Int[Tensor, "*B Q"]
    null: Int[Tensor, "*B Q"]
    null_fraction: Float[Tensor, "*B Q"]


def compact_head_values(
    value: Float[Tensor, "*B K E"], output_weight: Float[Tensor, "*H D E"], *, keep_row_sums: bool = False
) -> Float[Tensor, "*B K F"]:
    """Return T in as few columns as it has dimensions, with the same singular values and column space.

    ``W_O^T = Q R`` has orthonormal Q, so ``V W_O = (V R^T) Q^T`` and ``V R^T`` will do. A column of ones beside it
    keeps the sum of each row. In float64, for the rank of what is nearly singular.
    """
    triangle: Tensor = torch.linalg.qr(output_weight.double(), mode="r").R
    compact = value.double() @ triangle.mT
    if keep_row_sums:
        compact = torch.cat((compact, torch.ones_like(compact[..., :1])), -1)
    return compact


def effective_attention(
    weights: Float[Tensor, "*B Q K"],
    transformed_values: Float[Tensor, "*B K F"] | Float[Tensor, "*B Q K F"],
    mask: Bool[Tensor, "Q K"],
    d_model: int,
) -> tuple[Float[Tensor, "*B Q K"], AttentionIdentifiability]:
    """Return effective attention and identifiability, from weights and the output of `compact_head_values`.

    Where positions are added to the values, every query has values of its own. Computed in float64; singular values
    below ``eps max(keys, d_model)`` times the largest count as 0, with eps of the precision of the weights.
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
    null_norm, whole = ((exact - effective) * mask).norm(dim=-1), (exact * mask).norm(dim=-1)
    null_fraction = torch.where(whole > 0, null_norm / whole, 0.0)
    return effective.to(weights.dtype), AttentionIdentifiability(
        count, rank, count - rank, null_fraction.to(weights.dtype)
    )


def _column_space_basis(
    transformed_values: Float[Tensor, "*B K F"], tolerance: float
) -> tuple[Float[Tensor, "*B K r"], Int[Tensor, "*B"]]:
    """Return an orthonormal basis of the column space (columns beyond the rank are 0), and the rank."""
    left, singular, _ = torch.linalg.svd(transformed_values, full_matrices=False)
    counts = singular > tolerance * singular[..., :1]
    return left * counts[..., None, :], counts.sum(-1)
