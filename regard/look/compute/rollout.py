"""Attention rollout and attention flow of a stack of layers (Abnar and Zuidema 2020).

Both treat each layer as a graph between its inputs and outputs: half of a token is passed on by the residual
connection, half is mixed by attention.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor


def add_residual(attention: Float[Tensor, "L H Q K"]) -> Float[Tensor, "L Q K"]:
    """Return ``(A + I) / 2`` of every layer, heads averaged; rows sum to 1."""
    mean = attention.mean(1)
    return (mean + torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)) / 2


def attention_rollout(attention: Float[Tensor, "L H T T"]) -> Float[Tensor, "L T T"]:
    """Return the product of the residual-augmented attention of all layers up to each layer."""
    layers = add_residual(attention)
    total, by_layer = torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device), []
    for layer in layers:
        total = layer @ total
        by_layer.append(total)
    return torch.stack(by_layer)


def decoder_rollout(
    attention: Float[Tensor, "L H T T"],
    cross_attention: Float[Tensor, "L H T S"],
    encoder_rollout: Float[Tensor, "S S"],
) -> Float[Tensor, "L T inputs"]:
    """Return the rollout of a decoder over its source and target (S + T inputs), given that of the encoder.

    In each layer a token is mixed twice: by self-attention, then by cross-attention.
    """
    (t, s), mean = cross_attention.shape[-2:], cross_attention.mean(1)
    total = torch.cat(
        (cross_attention.new_zeros(t, s), torch.eye(t, dtype=cross_attention.dtype, device=cross_attention.device)), 1
    )
    by_layer = []
    for self_weights, cross_weights in zip(add_residual(attention), mean, strict=True):
        total = self_weights @ total
        from_source = torch.cat((cross_weights @ encoder_rollout, cross_attention.new_zeros(t, t)), 1)
        total = (total + from_source) / 2
        by_layer.append(total)
    return torch.stack(by_layer)


def attention_flow(attention: Float[Tensor, "L H T T"], output: int) -> Float[Tensor, " T"]:
    """Return the maximum flow from each input to one output of the last layer, with the weights as capacities.

    Dinic's algorithm for each input; an input's own capacity is unlimited.
    """
    layers = add_residual(attention).double().cpu().tolist()
    return attention.new_tensor([_maximum_flow(layers, source, output) for source in range(len(layers[0]))])


def _maximum_flow(layers: list[list[list[float]]], source: int, sink: int) -> float:
    """Return the maximum flow between a node of the lowest level and one of the highest; node = level * T + token."""
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
"""Capacity that counts as 0."""


def _bfs_levels(edges: list[dict[int, float]], source: int, sink: int) -> list[int]:
    """Return the distance of every node from the source over edges with capacity left; -1 if unreachable."""
    depth = [-1] * len(edges)
    depth[source] = 0
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for neighbour, capacity in edges[node].items():
            if capacity > MIN_FLOW_CAPACITY and depth[neighbour] < 0:
                depth[neighbour] = depth[node] + 1
                queue.append(neighbour)
    return depth


def _push_flow(
    edges: list[dict[int, float]],
    open_edges: list[Iterator[int]],
    levels: list[int],
    node: int,
    sink: int,
    limit: float,
) -> float:
    """Push as much flow as fits along one path to the sink; return the amount."""
    if node == sink:
        return limit
    for neighbour in open_edges[node]:
        capacity = edges[node][neighbour]
        if capacity > MIN_FLOW_CAPACITY and levels[neighbour] == levels[node] + 1:
            pushed = _push_flow(edges, open_edges, levels, neighbour, sink, min(limit, capacity))
            if pushed > 0:
                edges[node][neighbour] -= pushed
                edges[neighbour][node] += pushed
                return pushed
    return 0.0
