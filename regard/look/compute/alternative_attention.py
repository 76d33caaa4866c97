"""Alternative attention: other weights that give a head the same output (Brunner et al. 2020, section 3).

The weights of a query are a point of the polytope of all valid weights,

    { b :  b >= 0,  sum b = 1,  b T = a T }          a the model's weights, T = V W_O

which is this point alone unless there are more keys than the rank of ``[T 1]``. Jain and Wallace (2019) ask for weights
as different as possible that leave the prediction as it is, and accept a small change of it; here the output of the
head is the same. The largest total variation distance from a is sought: it is convex, so a vertex has it, and each
linear programme ``max sign(b - a) . b`` leads to one at least as far. The search has several starts and finds a local
maximum: a distance that is reached, and perhaps not the largest.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.look.compute.linear_programme import SimplexTableau
from regard.progress import track

N_STARTS, MAX_ROUNDS = 4, 20
"""First objectives of the search for each row of weights, and linear programmes from each at most. On rows of 8 to 10
keys, where every vertex can be compared, 3 starts end on average less than 0.01 below the largest distance."""

CHUNK_ELEMENTS = 1 << 22
"""Elements of all constraint matrices solved at once."""

MAX_OUTPUT_DIFFERENCE = 1e-6
"""The largest norm of the change of a head's output at which weights count as valid."""


class AlternativeAttention(NamedTuple):
    """Other valid weights, and per row their distance, the change of the output, visible keys and rank of ``[T 1]``.

    `distance` is the total variation distance from the model's weights, 0 (the same weights) to 1 (no common key);
    `output_difference` the norm of the difference of the head's outputs.
    """

    weights: Float[Tensor, "*B Q K"]
    distance: Float[Tensor, "*B Q"]
    output_difference: Float[Tensor, "*B Q"]
    keys: Int[Tensor, "*B Q"]
    rank: Int[Tensor, "*B Q"]


def find_alternative_attention(
    weights: Float[Tensor, "H Q K"],
    transformed_values: Float[Tensor, "H K F"] | Float[Tensor, "H Q K F"],
    mask: Bool[Tensor, "Q K"],
    *,
    seed: int = 0,
) -> AlternativeAttention:
    """Find for every row the valid weights farthest from the model's, in float64.

    `transformed_values` is the output of `compact_head_values`. Where no other weights are valid, the model's own are
    returned, with distance 0.
    """
    exact = weights.double() * mask
    exact = exact / exact.sum(-1, keepdim=True).clamp(min=1e-300)  # of float32 weights the sum is 1 to rounding only
    by_query = transformed_values.double() if transformed_values.ndim == 4 else transformed_values.double()[:, None]
    alternative, rank = exact.clone(), torch.zeros(weights.shape[:2], dtype=torch.long, device=weights.device)
    generator = torch.Generator().manual_seed(seed)
    patterns, pattern_of_row = mask.unique(dim=0, return_inverse=True)
    for number, pattern in enumerate(track(patterns, "alternative attention", len(patterns))):
        rows, keys = (pattern_of_row == number).nonzero().squeeze(-1), pattern.nonzero().squeeze(-1)
        if len(keys):
            theirs = by_query[:, rows[:, None], keys] if by_query.shape[1] > 1 else by_query[:, :, keys]
            moved, ranks = _find_farthest(exact[:, rows[:, None], keys], theirs, generator)
            alternative[:, rows[:, None], keys], rank[:, rows] = moved, ranks
    difference = ((alternative - exact)[:, :, None] @ by_query)[:, :, 0].norm(dim=-1)
    valid = difference <= MAX_OUTPUT_DIFFERENCE
    alternative, difference = torch.where(valid[..., None], alternative, exact), torch.where(valid, difference, 0.0)
    keys = mask.sum(-1).expand_as(rank)
    return AlternativeAttention(alternative, total_variation(alternative, exact), difference, keys, rank)


def search_size(n_rows: int, keys: Int[Tensor, " Q"], d_value: int) -> int:
    """Return the elements of all tableaus of a search, to which its time is proportional for texts of one length."""
    constraints = keys.clamp(max=d_value + 1)
    return n_rows * int((constraints * (keys - constraints)).sum())


def total_variation(one: Float[Tensor, "*B K"], other: Float[Tensor, "*B K"]) -> Float[Tensor, "*B"]:
    """Return the total variation distance of distributions, half the sum of absolute differences."""
    return (one - other).abs().sum(-1) / 2


def _find_farthest(
    weights: Float[Tensor, "H R K"], values: Float[Tensor, "H _ K F"], generator: torch.Generator
) -> tuple[Float[Tensor, "H R K"], Int[Tensor, "H R"]]:
    """Return the farthest valid weights of rows that all see the same keys, and the rank of ``[T 1]``."""
    basis, rank = _constraint_basis(values)
    basis = basis.expand(-1, weights.shape[1], -1, -1).flatten(0, 1)  # (H R, r, K)
    rank = rank.expand(-1, weights.shape[1])
    flat, alternative = weights.flatten(0, 1), weights.flatten(0, 1).clone()
    for n_constraints in rank.unique().tolist():
        if n_constraints < weights.shape[-1]:
            rows = (rank.flatten() == n_constraints).nonzero()[:, 0]
            for chunk in rows.split(max(1, CHUNK_ELEMENTS // (n_constraints * weights.shape[-1]))):
                alternative[chunk] = _search_vertices(basis[chunk, :n_constraints], flat[chunk], generator)
    return alternative.view_as(weights), rank


def _constraint_basis(values: Float[Tensor, "*B K F"]) -> tuple[Float[Tensor, "*B r K"], Int[Tensor, "*B"]]:
    """Return orthonormal rows that span the columns of ``[T 1]``, those beyond the rank last, and the rank.

    The rank is that of float64, not of the model's precision: the output has to be the same, not nearly the same.
    """
    scale = values.norm(dim=(-2, -1), keepdim=True) / values.shape[-2] ** 0.5  # a column of ones is as long
    scaled = values / torch.where(scale > 0, scale, 1.0)
    left, singular, _ = torch.linalg.svd(torch.cat((scaled, torch.ones_like(scaled[..., :1])), -1), full_matrices=False)
    least = torch.finfo(torch.float64).eps * max(scaled.shape[-2:]) * singular[..., :1]
    return left.mT, (singular > least).sum(-1)


def _search_vertices(
    constraints: Float[Tensor, "N m K"], weights: Float[Tensor, "N K"], generator: torch.Generator
) -> Float[Tensor, "N K"]:
    """Return the farthest vertex found from several starts: away from large weights, then in random directions."""
    best, farthest, tableau = weights.clone(), weights.new_zeros(len(weights)), SimplexTableau(constraints, weights)
    for start in range(N_STARTS):
        random = torch.randn(weights.shape, generator=generator, dtype=torch.float64).to(weights)
        vertex = _climb(tableau, -weights if start == 0 else random, weights)
        distance = total_variation(vertex, weights)
        best = torch.where((distance > farthest)[:, None], vertex, best)
        farthest = torch.maximum(distance, farthest)
    return best


def _climb(
    tableau: SimplexTableau, objective: Float[Tensor, "N K"], weights: Float[Tensor, "N K"]
) -> Float[Tensor, "N K"]:
    """Solve linear programmes until no row gets farther from its weights."""
    vertex = tableau.maximise(objective)
    for _ in range(MAX_ROUNDS):
        before = total_variation(vertex, weights)
        vertex = tableau.maximise((vertex - weights).sign())
        if bool((total_variation(vertex, weights) <= before + 1e-12).all()):
            break
    return vertex
