"""Attention masks, made from the segment and position ids of packed rows.

Several sentences share a row; `PackedPositions` holds the sentence each token belongs to and its index there:

    row       The cat sat <eos> Hello <eos>  .    .
    segment    1   1   1    1     2     2    0    0       0 = empty
    position   0   1   2    3     0     1    0    0

A token may attend to a token iff their segments are equal and not 0 (and, in a decoder, it is not later).
Segments come from data/batches.py; models call `make_mask` once per batch. Layers receive the resulting
`AttentionMask` and never see segments.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor


class PackedPositions(NamedTuple):
    """Segment and position ids of the tokens of packed rows."""

    segment: Int[Tensor, "B T"]
    position: Int[Tensor, "B T"]


class SelfAttentionLayout(NamedTuple):
    """Self-attention within the sentences of packed rows, causal or not.

    Sentences are contiguous and positions ascend in each, so kernels may work from the index in the row.
    """

    positions: PackedPositions
    causal: bool


class AttentionMask(NamedTuple):
    """The keys each query may attend to, and the positions of queries and keys in their sentences.

    A `mask` of None lets every query attend to every key. A fully masked query is unmasked everywhere in `mask`, so
    that no softmax is over nothing, and `fully_masked` zeroes its result. With `lengths` there is one row, filled by
    sentences of these lengths, each attending to itself: it needs no mask, and nothing is computed between sentences.
    In self-attention `layout` is what `mask` was made from.
    """

    query_position: Int[Tensor, "B Q"]
    key_position: Int[Tensor, "B K"]
    mask: Bool[Tensor, "B 1 Q K"] | None = None
    fully_masked: Bool[Tensor, "B 1 Q 1"] | None = None
    lengths: tuple[int, ...] = ()
    layout: SelfAttentionLayout | None = None

    def fit_to(self, n_dims: int) -> tuple[Tensor | None, Tensor | None]:
        """Return `mask` and `fully_masked` for scores with that many dimensions: three have no dimension of heads."""
        parts = (self.mask, self.fully_masked)
        mask, fully_masked = parts if n_dims == 4 else (part if part is None else part.squeeze(1) for part in parts)
        return mask, fully_masked


def make_mask(query: PackedPositions, key: PackedPositions | None = None, *, causal: bool = False) -> AttentionMask:
    """Return the mask of the tokens at `query` over the tokens at `key`, or over themselves."""
    layout = SelfAttentionLayout(query, causal) if key is None else None
    key = key or query
    same_segment = query.segment[:, :, None] == key.segment[:, None, :]
    mask = same_segment & (query.segment > 0)[:, :, None]  # (B, Q, K)
    if causal:
        mask = mask & (key.position[:, None, :] <= query.position[:, :, None])
    fully_masked = ~mask.any(-1, keepdim=True)  # (B, Q, 1)
    return AttentionMask(
        query.position, key.position, (mask | fully_masked)[:, None], fully_masked[:, None], layout=layout
    )
