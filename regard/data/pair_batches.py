"""Batches of pairs of texts for contrastive training, and which of their texts are not negatives of each other.

Anchors, positives and hard negatives have rows of their own; the texts of one pair have the same row and segment in
each. `slots` are the indices of the pairs among all segments, padded to a power of two, so that few shapes occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import SegmentedRows, TensorDataclass, build_segmented_rows, segment_numbers
from regard.data.order import Placement
from regard.data.store import TokenStore


@dataclass(frozen=True)
class SentencePairBatch(TensorDataclass):
    """Rows of anchors and, where there are any, of positives and hard negatives; padded pairs have the group 0.

    Two texts of one group are equal or belong together by some pair of the batch. A row holds at most
    `n_texts_per_row` texts. Scored pairs have `scores` from 0 to 1.
    """

    anchors: SegmentedRows
    positives: SegmentedRows | None
    negatives: SegmentedRows | None
    slots: Int[Tensor, " N"]
    groups: Int[Tensor, " N"]
    negative_groups: Int[Tensor, " N"] | None
    scores: Float[Tensor, " N"] | None
    n_texts_per_row: int
    n_tokens: int
    n_input_tokens: int


def build_sentence_pair_batch(
    store: TokenStore,
    placement: Placement,
    columns: Sequence[str],
    *,
    n_texts_per_row: int,
    scores: Float[np.ndarray, " items"] | None,
    pad_id: int,
) -> SentencePairBatch:
    """Build the batch of a placement from the columns of anchors, positives and negatives, as many as are given."""
    items = placement.items
    rows = [
        build_segmented_rows(store[column], store[column].lengths, placement, width, pad_id=pad_id)
        for column, width in zip(columns, placement.widths, strict=True)
    ]
    n_slots = 1 << max(0, len(items) - 1).bit_length()
    groups = group_texts([[store[column][item].tobytes() for item in items.tolist()] for column in columns])
    positives, negatives = [*rows[1:], None, None][:2]

    def pad(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.pad(values, (0, n_slots - len(items))))

    return SentencePairBatch(
        anchors=rows[0],
        positives=positives,
        negatives=negatives,
        slots=pad(placement.rows.astype(np.int64) * n_texts_per_row + segment_numbers(placement) - 1),
        groups=pad(groups[0]),
        negative_groups=pad(groups[2]) if len(columns) > 2 else None,
        scores=None if scores is None else pad(scores[items]),
        n_texts_per_row=n_texts_per_row,
        n_tokens=len(items),
        n_input_tokens=int(sum((each.segment > 0).sum() for each in rows)),
    )


def group_texts(texts: Sequence[Sequence[bytes]]) -> list[Int[np.ndarray, " N"]]:
    """Return the group, from 1 on, of each anchor, positive and negative: equal texts, and texts joined by a pair.

    If (a, b) and (b, c) are pairs, then c is no negative of a: a, b and c are one group.
    """
    numbers: dict[bytes, int] = {}
    indices = [np.array([numbers.setdefault(text, len(numbers)) for text in side], dtype=np.int64) for side in texts]
    groups = np.arange(1, len(numbers) + 1, dtype=np.int64)
    if len(texts) > 1:
        first, second = indices[:2]
        while not np.array_equal(groups[first], groups[second]):
            least = np.minimum(groups[first], groups[second])
            np.minimum.at(groups, first, least)
            np.minimum.at(groups, second, least)
    return [groups[side] for side in indices]
