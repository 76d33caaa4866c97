"""Reference implementations from the definitions: float64 numpy, one loop per index, nothing fast.

The tests of regard.nn compare against these; nothing here knows torch except to read weights out of a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.nn import MultiHeadAttention, PackedPositions

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def array(x: Tensor) -> Array:
    return x.detach().double().numpy()


def masked_softmax(scores: Array, mask: BoolArray) -> Array:
    """Return the softmax over unmasked keys; zeros elsewhere, and everywhere if all keys are masked."""
    weights = np.zeros_like(scores)
    total = sum(math.exp(s) for s, ok in zip(scores, mask, strict=True) if ok)
    for j, (score, ok) in enumerate(zip(scores, mask, strict=True)):
        if ok:
            weights[j] = math.exp(score) / total
    return weights


def attention(
    score: Callable[[Array, Array], float], query: Array, key: Array, value: Array, mask: BoolArray
) -> tuple[Array, Array]:
    """Return weights and outputs of one row of queries, for any score of a query and a key."""
    weights, out = np.zeros((len(query), len(key))), np.zeros((len(query), value.shape[-1]))
    for i in range(len(query)):
        scores = np.array([score(query[i], key[j]) for j in range(len(key))])
        weights[i] = masked_softmax(scores, mask[i])
        for j in range(len(key)):
            out[i] += weights[i, j] * value[j]
    return weights, out


@dataclass
class Scheme:
    """The effect of a position scheme on attention: rotate a query or key, add to a key or value by distance."""

    rotate: Callable[[Array, int], Array] = lambda vector, position: vector
    key: Callable[[int], Array | float] = lambda distance: 0.0
    value: Callable[[int], Array | float] = lambda distance: 0.0


def multi_head(
    module: MultiHeadAttention,
    x: Array,
    encoded: Array,
    mask: BoolArray,
    positions: tuple[Array, Array],
    scheme: Scheme,
) -> tuple[Array, Array]:
    """Return weights (H, Q, K) and outputs (Q, D) of one row, head by head with each head's own matrices."""
    h, k, v = module.n_heads, module.d_key, module.d_value
    weight, bias = array(module.projection.weight), array(module.projection.bias)
    of_query, of_key, of_value = np.split(np.concatenate((weight, bias[:, None]), 1), [h * k, 2 * h * k])

    def projected(inputs: Array, matrix: Array, head: int, width: int) -> Array:
        mine = matrix[head * width : (head + 1) * width]
        return np.array([mine[:, :-1] @ token + mine[:, -1] for token in inputs])

    weights, parts = np.zeros((h, len(x), len(encoded))), np.zeros((len(x), h * v))
    for head in range(h):
        query, key = projected(x, of_query, head, k), projected(encoded, of_key, head, k)
        value = projected(encoded, of_value, head, v)
        for i, q_position in enumerate(positions[0]):
            rotated = scheme.rotate(query[i], q_position)
            scores = np.zeros(len(encoded))
            for j, k_position in enumerate(positions[1]):
                scores[j] = (
                    rotated @ (scheme.rotate(key[j], k_position) + scheme.key(k_position - q_position)) / math.sqrt(k)
                )
            weights[head, i] = masked_softmax(scores, mask[i])
            for j, k_position in enumerate(positions[1]):
                parts[i, head * v : (head + 1) * v] += weights[head, i, j] * (
                    value[j] + scheme.value(k_position - q_position)
                )
    return weights, parts @ array(module.output.weight).T + array(module.output.bias)


def rotary(base: float = 10000.0) -> Scheme:
    """Rotate each coordinate pair (i, i + E/2) by the angle position / base^(2i/E)."""

    def rotate(vector: Array, position: int) -> Array:
        rotated, half = vector.copy(), len(vector) // 2
        for i in range(half):
            angle = position / base ** (2 * i / len(vector))
            a, b = vector[i], vector[i + half]
            rotated[i] = a * math.cos(angle) - b * math.sin(angle)
            rotated[i + half] = b * math.cos(angle) + a * math.sin(angle)
        return rotated

    return Scheme(rotate=rotate)


def relative(keys: Array, values: Array | None, max_distance: int) -> Scheme:
    """Add embeddings of the clipped distance (Shaw et al. 2018)."""

    def clip(distance: int) -> int:
        return max(-max_distance, min(max_distance, distance)) + max_distance

    return Scheme(
        key=lambda distance: keys[clip(distance)],
        value=lambda distance: 0.0 if values is None else values[clip(distance)],
    )


def reference_mask(query: PackedPositions, key: PackedPositions, *, causal: bool) -> BoolArray:
    """Return the mask (B, Q, K), token by token."""
    (b, q), k = query.segment.shape, key.segment.shape[1]
    mask = np.zeros((b, q, k), dtype=bool)
    for row in range(b):
        for i in range(q):
            for j in range(k):
                same = query.segment[row, i] == key.segment[row, j] and query.segment[row, i] != 0
                later = key.position[row, j] > query.position[row, i]
                mask[row, i, j] = bool(same) and not (causal and later)
    return mask


def layer_norm(x: Array, gain: Array, shift: Array, eps: float = 1e-5) -> Array:
    """Return ``gain * (x - mean) / std + shift`` of one token; as in torch, eps is inside the root."""
    return gain * (x - x.mean()) / math.sqrt(x.var() + eps) + shift


def random_positions(seed: int, rows: int, length: int, n_segments: int = 3) -> PackedPositions:
    """Return packed rows of sentences of random lengths, most with padding at the end."""
    rng = np.random.default_rng(seed)
    segment, position = np.zeros((rows, length), dtype=np.int32), np.zeros((rows, length), dtype=np.int32)
    for row in range(rows):
        start = 0
        for number in range(1, n_segments + 1):
            n = min(int(rng.integers(0, length // 2 + 1)), length - start)
            segment[row, start : start + n] = number
            position[row, start : start + n] = np.arange(n)
            start += n
    return PackedPositions(torch.from_numpy(segment), torch.from_numpy(position))


def one_sentence(rows: int, length: int) -> PackedPositions:
    """Return rows of one full sentence each."""
    return PackedPositions(
        torch.ones(rows, length, dtype=torch.int32),
        torch.arange(length, dtype=torch.int32).expand(rows, -1),
    )
