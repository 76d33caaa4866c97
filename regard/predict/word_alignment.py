"""Word alignment of a translation, derived from cross-attention.

    weights of the upper half of the layers, all heads, averaged                         (T, S) subwords
    -> added up over the subwords of a source word, averaged over those of a target word (target, source) words
    -> each source word's weights divided by their sum: a full stop that every word attends to says nothing
    -> each target word is aligned to its largest

Measured against other readings of the same weights in docs/LOG.md. ``<eos>`` takes no part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.text.subwords import Word

SMOOTHING = 1e-3
"""Added to each sum, so that a word with hardly any attention does not get the largest weight."""


def aggregate_word_attention(
    weights: Float[Tensor, "T S"], target: Sequence[Word], source: Sequence[Word]
) -> Float[Tensor, "target source"]:
    """Return attention between words, from attention between tokens."""
    rows = [weights[list(word.token_indices)].mean(0) for word in target]
    by_word = torch.stack(rows) if rows else weights[:0]
    columns = [by_word[:, list(word.token_indices)].sum(1) for word in source]
    return torch.stack(columns, 1) if columns else by_word[:, :0]


def normalise_word_attention(
    weights: Float[Tensor, "L H T S"], target: Sequence[Word], source: Sequence[Word]
) -> Float[Tensor, "target source"]:
    """Return the attention of each source word normalised over the target words."""
    between = aggregate_word_attention(weights[len(weights) // 2 :].mean((0, 1)), target, source)
    return between / (between.sum(0) + SMOOTHING)


def align_words(
    weights: Float[Tensor, "L H T S"], target: Sequence[Word], source: Sequence[Word]
) -> list[tuple[int, int]]:
    """Return pairs (source word, target word), counted from 0, in target order; none without attention."""
    if not (target and source and len(weights)):
        return []
    return [(int(s), t) for t, s in enumerate(normalise_word_attention(weights, target, source).argmax(1))]
