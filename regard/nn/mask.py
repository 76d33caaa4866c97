"""Who may look at whom: where the masks of texts are made.

Several sentences share a row; `Place` says of each token which sentence it belongs to and where in it:

    row       The cat sat <eos> Hello <eos>  .    .
    segment    1   1   1    1     2     2    0    0       0 = empty
    position   0   1   2    3     0     1    0    0

A token may attend to a token iff their segments are equal and not 0 (and, in a decoder, it is not later).
Layers receive the resulting `Sight` and never see segments.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Int
from torch import Tensor


class PackedPositions(NamedTuple):
    """Where each token of a packed row stands."""

    segment: Int[Tensor, "B T"]
    position: Int[Tensor, "B T"]


class SelfAttentionLayout(NamedTuple):
    """Tokens that look at those of their own sentence, all of them or none that is later.

    Sentences lie one after another, and positions ascend in each: so kernels may go by the place in the row.
    """

    positions: PackedPositions
    causal: bool


class AttentionMask(NamedTuple):
    """What each query may attend to, and where queries and keys stand in their sentences.

    `allowed` None means that every query sees every key. A blank query, one with nothing to attend to, is let
    look everywhere, so that no softmax runs over nothing, and its result is then put to zero. With `lengths` there
    is one row, filled by sentences of these lengths, and each token sees its own: no mask is needed, and nothing is
    computed between sentences. Where tokens look at each other, `within` is what `allowed` follows from.
    """

    query_position: Int[Tensor, "B Q"]
    key_position: Int[Tensor, "B K"]
    mask: Bool[Tensor, "B 1 Q K"] | None = None
    fully_masked: Bool[Tensor, "B 1 Q 1"] | None = None
    lengths: tuple[int, ...] = ()
    layout: SelfAttentionLayout | None = None


def make_mask(query: PackedPositions, key: PackedPositions | None = None, *, causal: bool = False) -> AttentionMask:
    """The sight of the tokens at `query` over the tokens at `key`, or over themselves."""
    within = SelfAttentionLayout(query, causal) if key is None else None
    key = key or query
    same = query.segment[:, :, None] == key.segment[:, None, :]
    allowed = same & (query.segment > 0)[:, :, None]  # (B, Q, K)
    if causal:
        allowed = allowed & (key.position[:, None, :] <= query.position[:, :, None])
    blank = ~allowed.any(-1, keepdim=True)  # (B, Q, 1)
    return AttentionMask(query.position, key.position, (allowed | blank)[:, None], blank[:, None], layout=within)
