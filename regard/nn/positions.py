"""Position schemes, one class each: sinusoidal, learned, relative, rotary, none.

A scheme overrides one or two of four methods: it adds to the embeddings (sinusoidal, learned), rotates queries and keys
(rotary), or adds to the scores and the values of attention (relative). Models pass absolute schemes to their embedding
and the others to each self-attention.

To add one: a class here, a line in the tables of models/blocks.py, its name in `PositionScheme` of models/config.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.mask import AttentionMask


class Positions(nn.Module):
    """Base class: every method is a no-op; a scheme overrides those it needs."""

    acts_in_attention = False
    """The scheme rotates queries and keys or adds to scores or values: attention needs more than q, k, v and a mask."""

    adds_to_scores = False
    """The scheme adds to scores or values, instead of only rotating queries and keys."""

    needs_weights = False
    """The scheme needs explicit attention weights, so attention cannot run fused."""

    def embed(self, x: Float[Tensor, "B T D"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Add absolute positions to token embeddings."""
        return x

    def rotate(self, heads: Float[Tensor, "B H T E"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B H T E"]:
        """Rotate the queries or keys of all heads by their positions."""
        return heads

    def score_bias(
        self, query: Float[Tensor, "B H Q E"], attention_mask: AttentionMask
    ) -> Float[Tensor, "B H Q K"] | None:
        """Return the term added to ``q . k`` before the division by ``sqrt(d_k)``, or None."""
        return None

    def value_bias(
        self, weights: Float[Tensor, "B H Q K"], attention_mask: AttentionMask
    ) -> Float[Tensor, "B H Q E"] | None:
        """Return the term added to the weighted sum of values, or None."""
        return None


class NoPositions(Positions):
    """No positions: self-attention is permutation-equivariant."""


class SinusoidalPositions(Positions):
    """``PE(p, 2i) = sin(p / n^(2i/d))``, ``PE(p, 2i+1) = cos(p / n^(2i/d))`` (Vaswani et al. 2017); any length.

    With `halves` all sines come before all cosines, as in Marian.
    """

    def __init__(self, d_model: int, base: float = 10000.0, *, halves: bool = False) -> None:
        super().__init__()
        assert d_model % 2 == 0, f"sinusoidal positions need an even width, found d_model = {d_model}"
        self.d_model, self.base, self.halves = d_model, base, halves

    def table(self, position: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "*B T D"]:
        """Return the rows of PE for these positions."""
        even = torch.arange(0, self.d_model, 2, device=position.device, dtype=dtype)
        angle = position[..., None] * self.base ** (-even / self.d_model)  # (*B, T, D/2)
        return torch.stack((angle.sin(), angle.cos()), -2 if self.halves else -1).flatten(-2)

    def embed(self, x: Float[Tensor, "B T D"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return x + self.table(position, torch.promote_types(x.dtype, torch.float32)).to(x.dtype)


class LearnedPositions(Positions):
    """A learned embedding of each position up to a limit (Gehring et al. 2017, BERT).

    Position 0 is row `offset`; RoBERTa and BART never use the two rows before it.
    """

    def __init__(self, n_positions: int, d_model: int, *, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.embedding = nn.Embedding(offset + n_positions, d_model)

    def embed(self, x: Float[Tensor, "B T D"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        added: Tensor = self.embedding(position + self.offset if self.offset else position)
        return x + added


class RelativePositions(Positions):
    """Learned embeddings of the clipped distance between query and key, added to the keys (Shaw et al. 2018, eq. 4).

    With `d_value` others are added to the values (eq. 3). All heads of a layer share them.
    """

    acts_in_attention = adds_to_scores = True

    def __init__(self, d_key: int, max_distance: int = 16, *, d_value: int | None = None) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.keys = nn.Embedding(2 * max_distance + 1, d_key)
        self.values = None if d_value is None else nn.Embedding(2 * max_distance + 1, d_value)
        self.needs_weights = d_value is not None

    def distance_index(self, attention_mask: AttentionMask) -> Int[Tensor, "B 1 Q K"]:
        """Return the embedding row for each query and key: 0 is far to the left, `max_distance` is the query itself."""
        distance = attention_mask.key_position[:, None, :] - attention_mask.query_position[:, :, None]
        return (distance.clamp(-self.max_distance, self.max_distance) + self.max_distance)[:, None].long()

    def score_bias(
        self, query: Float[Tensor, "B H Q E"], attention_mask: AttentionMask
    ) -> Float[Tensor, "B H Q K"] | None:
        by_distance = query @ self.keys.weight.T  # (B, H, Q, distances)
        return by_distance.gather(-1, self.distance_index(attention_mask).expand(-1, query.shape[1], -1, -1))

    def value_bias(
        self, weights: Float[Tensor, "B H Q K"], attention_mask: AttentionMask
    ) -> Float[Tensor, "B H Q E"] | None:
        if self.values is None:
            return None
        by_distance = weights.new_zeros(*weights.shape[:-1], 2 * self.max_distance + 1)
        index = self.distance_index(attention_mask).expand_as(weights)
        return by_distance.scatter_add(-1, index, weights) @ self.values.weight


class RotaryPositions(Positions):
    """Rotation of each pair (i, i + E/2) of query and key coordinates by the angle ``p n^(-2i/E)`` (Su et al. 2021)."""

    acts_in_attention = True

    def __init__(self, d_key: int, base: float = 10000.0) -> None:
        super().__init__()
        assert d_key % 2 == 0, f"rotary positions need an even width per head, found {d_key}"
        self.d_key, self.base = d_key, base

    def rotate(self, heads: Float[Tensor, "B H T E"], position: Int[Tensor, "B T"]) -> Float[Tensor, "B H T E"]:
        exact = torch.promote_types(heads.dtype, torch.float32)
        pair = torch.arange(0, self.d_key, 2, device=position.device, dtype=exact)
        angle = (position[..., None] * self.base ** (-pair / self.d_key))[:, None]  # (B, 1, T, E/2)
        cos, sin = angle.cos().to(heads.dtype), angle.sin().to(heads.dtype)
        first, second = heads.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
