"""Which source word each target word came from, read off cross-attention (SPEC 7.4).

The weights of all layers and heads are averaged; the pieces of a word add up on the source side and are averaged
on the target side; a target word is aligned to the source word it looked at most. ``<eos>`` takes no part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.text.tokenizer import Word


def word_weights(
    weights: Float[Tensor, "T S"], target: Sequence[Word], source: Sequence[Word]
) -> Float[Tensor, "target source"]:
    """Attention between words, from attention between pieces."""
    rows = [weights[list(word.pieces)].mean(0) for word in target]
    by_word = torch.stack(rows) if rows else weights[:0]
    columns = [by_word[:, list(word.pieces)].sum(1) for word in source]
    return torch.stack(columns, 1) if columns else by_word[:, :0]


def align(weights: Float[Tensor, "L H T S"], target: Sequence[Word], source: Sequence[Word]) -> list[tuple[int, int]]:
    """Pairs (source word, target word), both counted from 0, in the order of the target."""
    between = word_weights(weights.mean((0, 1)), target, source)
    if between.numel() == 0:
        return []
    return [(int(s), t) for t, s in enumerate(between.argmax(1))]
