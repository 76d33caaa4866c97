"""Pairs of pieces of text, half of them adjacent in their document: what next sentences are learned from (SPEC 5).

pretrain.py cuts documents into pieces here, and draws the pairs when a text is encoded. Ids in, ids out: nothing here
knows a vocabulary or a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from regard.progress import warn

FEW = 0.25
"""Share of pairs from elsewhere below which next sentences are not worth learning."""

Ids = list[int]


class Pair(NamedTuple):
    """Two pieces of text, adjacent in their document or not."""

    first: Ids
    second: Ids
    adjacent: bool = True


def pieces_of(lines: Iterable[Ids], most: int) -> list[Ids]:
    """The tokens of a document, so many at a time."""
    tokens = list(chain.from_iterable(lines))
    return [tokens[start : start + most] for start in range(0, len(tokens), most)]


def paired(pieces: list[Ids], rng: np.random.Generator) -> list[Pair]:
    """Neighbours of one document; a last piece without one is cut at random, or shares with the two before it.

    Only a document of a single token has no pair.
    """
    if len(pieces) % 2 and len(pieces[-1]) > 1:
        cut = int(rng.integers(1, len(pieces[-1])))
        pieces = [*pieces[:-1], pieces[-1][:cut], pieces[-1][cut:]]
    elif len(pieces) % 2 and len(pieces) > 1:
        shared = [*pieces[-2], *pieces[-1]]
        third = len(shared) // 3
        pieces = [*pieces[:-2], shared[:third], shared[third : 2 * third], shared[2 * third :]]
    return [Pair(first, second) for first, second in zip(pieces[::2], pieces[1::2], strict=False)]


def next_sentences(documents: Sequence[Sequence[Pair]], rng: np.random.Generator) -> list[Pair]:
    """The pairs of all documents, half of them with the second piece of a pair from another document.

    Pieces are only exchanged for others as long, or their lengths would tell; what has none to exchange with stays.
    """
    pairs = [pair for document in documents for pair in document]
    owner = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    lengths = np.array([len(pair.second) for pair in pairs])
    drawn: dict[int, int] = {}
    for length in np.unique(lengths):
        alike = rng.permutation(np.flatnonzero(lengths == length))
        drawn |= _ring(np.sort(alike[: max(2, len(alike) // 2)]), owner)
    return [
        Pair(pair.first, pairs[drawn[here]].second, adjacent=False) if here in drawn else pair
        for here, pair in enumerate(pairs)
    ]


def _ring(chosen: Int[np.ndarray, " chosen"], owner: Int[np.ndarray, " pairs"]) -> dict[int, int]:
    """From whom each of these pairs gets its second piece: handed on further than a document reaches, so none is lost.

    Where one document has more of them than all others together, some of its pairs get none.
    """
    counts = np.bincount(owner[chosen], minlength=1)
    over = 2 * int(counts.max()) - len(chosen)
    if over > 0:
        chosen = np.delete(chosen, np.flatnonzero(owner[chosen] == counts.argmax())[:over])
    away = np.roll(chosen, -int(np.bincount(owner[chosen], minlength=1).max()))
    return dict(zip(chosen.tolist(), away.tolist(), strict=True))


def warn_of_few(n_elsewhere: int, n_pairs: int, otherwise: str) -> None:
    """Say so where next sentences cannot be learned or scored, since hardly any is from elsewhere."""
    share = n_elsewhere / max(1, n_pairs)
    if share < FEW:
        warn(
            f"only {share:.0%} of {n_pairs:,} pairs could be given a second piece from another document; "
            f"part documents by blank lines or give more of them{otherwise}"
        )
