"""Pairs of blocks for next-sentence prediction, half of them adjacent in their document (Devlin et al. 2019).

pretrain.py splits documents into blocks and draws the pairs here, when a text is encoded. Ids in, ids out: nothing here
knows a vocabulary or a model.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from regard.progress import warn

MIN_NEGATIVE_FRACTION = 0.25
"""Fraction of pairs from elsewhere below which next sentences are not worth learning."""

ID_TYPE = "I"
"""The type code of arrays of ids: four bytes each, a tenth of what a list takes."""

Ids = Sequence[int]


class SentencePair(NamedTuple):
    """Two blocks of text, adjacent in their document or not."""

    first: Ids
    second: Ids
    is_next: bool = True


def split_into_blocks(lines: Iterable[Ids], block_size: int) -> list[Ids]:
    """Return the tokens of a document in blocks."""
    tokens = array(ID_TYPE, chain.from_iterable(lines))
    return [tokens[start : start + block_size] for start in range(0, len(tokens), block_size)]


def pair_adjacent_blocks(blocks: list[Ids], rng: np.random.Generator) -> list[SentencePair]:
    """Return pairs of adjacent blocks; a last odd block is split at random, or shared with the two before it.

    Only a document of a single token has no pair.
    """
    if len(blocks) % 2 and len(blocks[-1]) > 1:
        cut = int(rng.integers(1, len(blocks[-1])))
        blocks = [*blocks[:-1], blocks[-1][:cut], blocks[-1][cut:]]
    elif len(blocks) % 2 and len(blocks) > 1:
        shared = [*blocks[-2], *blocks[-1]]
        third = len(shared) // 3
        blocks = [*blocks[:-2], shared[:third], shared[third : 2 * third], shared[2 * third :]]
    return [SentencePair(first, second) for first, second in zip(blocks[::2], blocks[1::2], strict=False)]


def sample_next_sentence_pairs(
    documents: Sequence[Sequence[SentencePair]], rng: np.random.Generator
) -> list[SentencePair]:
    """Return the pairs of all documents, half of them with a second block from another document.

    Blocks are exchanged only for others of the same length, or the length would give the answer away; a block without
    such a partner stays.
    """
    pairs = [pair for document in documents for pair in document]
    owner = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    lengths = np.array([len(pair.second) for pair in pairs])
    donor: dict[int, int] = {}
    for length in np.unique(lengths):
        as_long = rng.permutation(np.flatnonzero(lengths == length))
        donor |= _swap_across_documents(np.sort(as_long[: max(2, len(as_long) // 2)]), owner)
    return [
        SentencePair(pair.first, pairs[donor[i]].second, is_next=False) if i in donor else pair
        for i, pair in enumerate(pairs)
    ]


def _swap_across_documents(
    pair_indices: Int[np.ndarray, " chosen"], owner: Int[np.ndarray, " pairs"]
) -> dict[int, int]:
    """Return for each pair the one that gives its second block, rotated across documents so that none is lost.

    Where one document has more of them than all others together, some of its pairs get none.
    """
    counts = np.bincount(owner[pair_indices], minlength=1)
    n_surplus = 2 * int(counts.max()) - len(pair_indices)
    if n_surplus > 0:
        pair_indices = np.delete(pair_indices, np.flatnonzero(owner[pair_indices] == counts.argmax())[:n_surplus])
    donors = np.roll(pair_indices, -int(np.bincount(owner[pair_indices], minlength=1).max()))
    return dict(zip(pair_indices.tolist(), donors.tolist(), strict=True))


def warn_about_few_negatives(n_negatives: int, n_pairs: int, advice: str) -> None:
    """Say so where next sentences cannot be learned or scored, since hardly any is from elsewhere."""
    fraction = n_negatives / max(1, n_pairs)
    if fraction < MIN_NEGATIVE_FRACTION:
        warn(
            f"only {fraction:.0%} of {n_pairs:,} pairs could be given a second block from another document; "
            f"put blank lines between documents or give more of them{advice}"
        )
