"""From the attention of single layers to what a whole stack lets through: rollout and flow (Abnar and Zuidema 2020).

Both see each layer as a graph between its inputs and outputs: half of a token goes on as it is, by the residual
connection, half is what it attends to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor


def add_residual(attention: Float[Tensor, "L H Q K"]) -> Float[Tensor, "L Q K"]:
    """``(A + I) / 2`` of every layer, heads averaged; rows sum to 1."""
    mean = attention.mean(1)
    return (mean + torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)) / 2


def attention_rollout(attention: Float[Tensor, "L H T T"]) -> Float[Tensor, "L T T"]:
    """How much of each input is in each output of every layer, if information only mixes as attention says."""
    layers = add_residual(attention)
    total, every = torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device), []
    for layer in layers:
        total = layer @ total
        every.append(total)
    return torch.stack(every)


def decoder_rollout(
    attention: Float[Tensor, "L H T T"],
    cross_attention: Float[Tensor, "L H T S"],
    encoder_rollout: Float[Tensor, "S S"],
) -> Float[Tensor, "L T inputs"]:
    """The rollout of a decoder over its source and its target (S + T inputs), `memory` being that of the encoder.

    In each layer a token is mixed twice: with the tokens it attends to, then with the encoder's outputs it looks at.
    """
    (t, s), mean = cross_attention.shape[-2:], cross_attention.mean(1)
    total = torch.cat(
        (cross_attention.new_zeros(t, s), torch.eye(t, dtype=cross_attention.dtype, device=cross_attention.device)), 1
    )
    every = []
    for own, back in zip(add_residual(attention), mean, strict=True):
        total = own @ total
        looked = torch.cat((back @ encoder_rollout, cross_attention.new_zeros(t, t)), 1)
        total = (total + looked) / 2
        every.append(total)
    return torch.stack(every)


def attention_flow(attention: Float[Tensor, "L H T T"], output: int) -> Float[Tensor, " T"]:
    """How much could flow from each input to one output of the last layer, the mixed weights being capacities.

    A maximum flow (Dinic) for each input; an input's own capacity is what leaves it.
    """
    layers = add_residual(attention).double().cpu().tolist()
    return attention.new_tensor([_maximum_flow(layers, source, output) for source in range(len(layers[0]))])


def _maximum_flow(layers: list[list[list[float]]], source: int, sink: int) -> float:
    """From a node of the lowest level to one of the highest; node (level, token) is numbered level * T + token."""
    n_tokens, n_levels = len(layers[0]), len(layers) + 1
    edges: list[dict[int, float]] = [{} for _ in range(n_tokens * n_levels)]
    for level, layer in enumerate(layers):
        for query, row in enumerate(layer):
            for key, capacity in enumerate(row):
                if capacity > 0:
                    edges[level * n_tokens + key][(level + 1) * n_tokens + query] = capacity
                    edges[(level + 1) * n_tokens + query].setdefault(level * n_tokens + key, 0.0)
    end, total = (n_levels - 1) * n_tokens + sink, 0.0
    while (depth := _bfs_levels(edges, source, end))[end] >= 0:
        open_edges = [iter(list(out)) for out in edges]
        while (pushed := _push_flow(edges, open_edges, depth, source, end, float("inf"))) > 0:
            total += pushed
    return total


MIN_FLOW_CAPACITY = 1e-12
"""Capacity that counts as none."""


def _bfs_levels(edges: list[dict[int, float]], source: int, sink: int) -> list[int]:
    """The distance of every node from the source over edges that have capacity left; -1 where there is no way."""
    depth = [-1] * len(edges)
    depth[source] = 0
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for following, capacity in edges[node].items():
            if capacity > MIN_FLOW_CAPACITY and depth[following] < 0:
                depth[following] = depth[node] + 1
                queue.append(following)
    return depth


def _push_flow(
    edges: list[dict[int, float]],
    open_edges: list[Iterator[int]],
    levels: list[int],
    node: int,
    sink: int,
    limit: float,
) -> float:
    """Send as much as fits along one way to the end; gives how much."""
    if node == sink:
        return limit
    for following in open_edges[node]:
        capacity = edges[node][following]
        if capacity > MIN_FLOW_CAPACITY and levels[following] == levels[node] + 1:
            pushed = _push_flow(edges, open_edges, levels, following, sink, min(limit, capacity))
            if pushed > 0:
                edges[node][following] -= pushed
                edges[following][node] += pushed
                return pushed
    return 0.0
