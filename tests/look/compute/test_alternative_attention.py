"""Alternative attention: linear programmes against all vertices of a small polytope, and weights that are valid."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from jaxtyping import Float
from sample_targets import one_stack, translator
from torch import Tensor

from regard.look.compute.alternative_attention import (
    MAX_OUTPUT_DIFFERENCE,
    find_alternative_attention,
    search_size,
    total_variation,
)
from regard.look.compute.linear_programme import SimplexTableau
from regard.look.inspection import Inspection

Matrix = Float[np.ndarray, "m K"]


def all_vertices(constraints: Matrix, inside: Float[np.ndarray, " K"]) -> Float[np.ndarray, "V K"]:
    """Every basic solution that is not negative: the vertices of ``{x >= 0, M x = M a}``."""
    n_constraints, n_keys = constraints.shape
    found = []
    for basis in combinations(range(n_keys), n_constraints):
        columns = constraints[:, basis]
        if abs(np.linalg.det(columns)) > 1e-9 and (x := np.linalg.solve(columns, constraints @ inside)).min() > -1e-11:
            found.append(np.zeros(n_keys))
            found[-1][list(basis)] = x
    return np.array(found)


def random_head(seed: int, queries: int = 12, keys: int = 8, width: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, queries, keys, generator=generator, dtype=torch.float64).softmax(-1)
    return weights, torch.randn(1, keys, width, generator=generator, dtype=torch.float64)


def constraints_of(values: Tensor) -> Matrix:
    return torch.cat((values[0], torch.ones_like(values[0, :, :1])), -1).T.numpy()


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_programme_finds_the_best_of_all_vertices(seed: int) -> None:
    weights, values = random_head(seed)
    constraints = constraints_of(values)
    objective = torch.randn(weights[0].shape, generator=torch.Generator().manual_seed(seed + 9), dtype=torch.float64)
    tableau = SimplexTableau(torch.from_numpy(constraints).expand(len(objective), -1, -1).clone(), weights[0])
    for direction in (objective, -objective):  # the second from the vertex of the first
        found = tableau.maximise(direction)
        for row, x in enumerate(found):
            expected = (all_vertices(constraints, weights[0, row].numpy()) @ direction[row].numpy()).max()
            assert abs(float(x @ direction[row]) - expected) < 1e-10
            assert x.min() >= 0


@pytest.mark.parametrize("seed", range(3))
def test_distance_is_that_of_a_vertex_and_hardly_below_the_largest(seed: int) -> None:
    weights, values = random_head(seed)
    found = find_alternative_attention(weights, values, torch.ones(12, 8, dtype=torch.bool))
    shortfall = []
    for row, own in enumerate(weights[0]):
        vertices = all_vertices(constraints_of(values), own.numpy())
        distances = np.abs(vertices - own.numpy()).sum(1) / 2
        assert np.abs(distances - float(found.distance[0, row])).min() < 1e-10
        shortfall.append(distances.max() - float(found.distance[0, row]))
    assert np.mean(shortfall) < 0.02
    assert found.distance.mean() > 0.4


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_alternative_weights_are_valid_and_keep_the_output_of_head_and_model(kind: str) -> None:
    seen = Inspection(translator(9, 8))  # values of 4 dimensions
    found, own = seen.alternative_attention(kind), seen.attention(kind)
    assert found.weights.min() >= 0
    assert (found.weights.sum(-1) - 1).abs().max() < 1e-12
    assert (found.weights[..., ~seen.attention_mask(kind)] == 0).all()
    has_room = seen.attention_mask(kind).sum(-1) > 5
    assert (found.rank <= 5).all()
    assert (found.distance[..., has_room] > 0.01).all()
    assert (found.distance[..., ~has_room] < 1e-12).all()
    assert torch.equal(
        found.weights[..., ~has_room, :], own[..., ~has_room, :] / own[..., ~has_room, :].sum(-1)[..., None]
    )
    for layer, (name, module) in enumerate(seen.look_target.attentions(kind).items()):
        value = seen._recorded[0][f"{name}.value"][0]
        for head in range(2):
            into = module.output.weight[:, 4 * head : 4 * head + 4]
            change = (found.weights[layer, head] - own[layer, head]) @ value[head] @ into.T
            assert change.norm(dim=-1).max() < MAX_OUTPUT_DIFFERENCE
    assert found.output_difference.max() < 1e-12
    assert seen.output_change_with(kind, found.weights) < 1e-10


def test_weights_that_are_not_valid_do_change_the_output() -> None:
    seen = Inspection(one_stack("encoder", 9))
    assert seen.output_change_with("encoder", seen.attention().flip(-1)) > 1e-3


def test_positions_added_to_values_are_part_of_the_output() -> None:
    seen = Inspection(one_stack("encoder", 9, positions="relative-values"))
    found = seen.alternative_attention()
    assert found.distance.max() > 0.05
    assert seen.output_change_with("encoder", found.weights) < 1e-10


def test_one_layer_and_head_alone_equal_all_in_rank_and_keep_the_output() -> None:
    seen = Inspection(one_stack("encoder", 9))
    one = seen.alternative_attention(layer=-1, head=0)
    assert one.weights.shape == (1, 1, 9, 9)
    assert torch.equal(one.rank[0, 0], seen.alternative_attention().rank[1, 0])
    assert seen.output_change_with("encoder", one.weights, layer=-1, head=0) < 1e-10


def test_size_of_a_search_counts_the_entries_of_its_tableaus() -> None:
    assert search_size(2, torch.tensor([3, 5, 8]), 4) == 2 * (0 + 0 + 5 * 3)


def test_total_variation_is_half_the_sum_of_differences() -> None:
    assert total_variation(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.25, 0.75])).item() == 0.75
