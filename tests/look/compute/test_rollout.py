"""Rollout by its product of matrices, flow by brute force over all cuts."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.look.compute.rollout import add_residual, attention_flow, attention_rollout, decoder_rollout


def attention(seed: int, layers: int, heads: int, queries: int, keys: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(layers, heads, queries, keys, generator=generator, dtype=torch.float64).mul(2).softmax(-1)


def test_rollout_is_the_product_of_the_layers() -> None:
    weights = attention(0, 3, 2, 5, 5)
    first, second, third = (weights.mean(1) + torch.eye(5)) / 2
    found = attention_rollout(weights)
    assert_close(found, torch.stack([first, second @ first, third @ second @ first]))
    assert_close(found.sum(-1), torch.ones(3, 5, dtype=torch.float64))


def test_the_rollout_of_a_decoder_is_over_source_and_target() -> None:
    own, cross = attention(0, 2, 2, 4, 4), attention(1, 2, 2, 4, 3)
    memory = attention_rollout(attention(2, 2, 2, 3, 3))[-1]
    found = decoder_rollout(own, cross, memory)
    assert found.shape == (2, 4, 7)
    assert_close(found.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    by_hand = ((own[0].mean(0) + torch.eye(4)) / 2 / 2, cross[0].mean(0) @ memory / 2)
    assert_close(found[0], torch.cat((by_hand[1], by_hand[0]), 1))


def smallest_cut(layers: Tensor, source: int, sink: int) -> float:
    """Over every set of nodes that holds the source and not the sink: the capacity that leaves it."""
    n_levels, n = len(layers) + 1, layers.shape[-1]
    nodes = [(level, token) for level in range(n_levels) for token in range(n)]
    free = [node for node in nodes if node not in ((0, source), (n_levels - 1, sink))]
    best = float("inf")
    for chosen in itertools.product((False, True), repeat=len(free)):
        inside = {node for node, is_in in zip(free, chosen, strict=True) if is_in} | {(0, source)}
        leaving = sum(
            float(layers[level, query, key])
            for level, key in inside
            if level < n_levels - 1
            for query in range(n)
            if (level + 1, query) not in inside
        )
        best = min(best, leaving)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_maximum_flow_equals_minimum_cut(seed: int) -> None:
    weights = attention(seed, 2, 2, 3, 3)
    if seed % 2:
        weights = weights.tril()
    found = attention_flow(weights, output=1)
    for source in range(3):
        assert float(found[source]) == pytest.approx(smallest_cut(add_residual(weights), source, 1), abs=1e-9)
