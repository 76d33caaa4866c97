"""Scores of the vectors of pairs of texts: correlation with given scores, or retrieval of positives by anchors.

Vectors are compared by their cosine, as `match` compares them. Called by the embedding task in validation and by
`evaluate`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.metrics import pearson, retrieval_metrics, spearman

QUERIES_PER_BLOCK = 512
"""Queries compared with all documents at once."""


class EmbeddedTexts(NamedTuple):
    """Texts, or other objects that represent them, and their vectors."""

    texts: Sequence[Hashable]
    vectors: Float[np.ndarray, "N D"]


def score_pairs(first: EmbeddedTexts, second: EmbeddedTexts, scores: Float[np.ndarray, " N"]) -> dict[str, float]:
    """Return the correlations of the cosines of pairs with their scores."""
    cosines = np.einsum("nd,nd->n", _unit(first.vectors), _unit(second.vectors))
    return {"spearman": spearman(scores, cosines), "pearson": pearson(scores, cosines)}


def score_retrieval(
    anchors: EmbeddedTexts, positives: EmbeddedTexts, negatives: EmbeddedTexts | None = None
) -> dict[str, float]:
    """Return how well anchors find their positives among all texts of the other side, hard negatives included.

    Each text is sought, and found, once. A text equal to the anchor is left out unless it is its positive.
    """
    queries, documents = dict.fromkeys(anchors.texts), dict.fromkeys(positives.texts)
    documents |= dict.fromkeys(negatives.texts) if negatives else {}
    query_numbers, document_numbers = _number(queries), _number(documents)
    query_vectors = _unit(_select(anchors, list(queries)))
    document_vectors = _unit(_select(positives, list(documents), negatives))
    pairs = np.array(
        [
            (query_numbers[anchor], document_numbers[positive])
            for anchor, positive in zip(anchors.texts, positives.texts, strict=True)
        ]
    )
    itself = np.array([document_numbers.get(text, -1) for text in queries])
    ranks = [
        _rank_block(query_vectors, document_vectors, pairs, itself, start)
        for start in range(0, len(queries), QUERIES_PER_BLOCK)
    ]
    return retrieval_metrics(np.concatenate(ranks).tolist())


def _rank_block(
    queries: Float[np.ndarray, "N D"],
    documents: Float[np.ndarray, "documents D"],
    pairs: Int[np.ndarray, "pairs 2"],
    itself: Int[np.ndarray, " N"],
    start: int,
) -> Int[np.ndarray, " block"]:
    """Return, for some queries, the rank of the nearest of their documents; of equal cosines theirs comes last."""
    scores = queries[start : start + QUERIES_PER_BLOCK] @ documents.T
    own = pairs[(pairs[:, 0] >= start) & (pairs[:, 0] < start + len(scores))] - [start, 0]
    is_relevant: Bool[np.ndarray, "block documents"] = np.zeros(scores.shape, dtype=bool)
    is_relevant[own[:, 0], own[:, 1]] = True
    is_itself = itself[start : start + len(scores), None] == np.arange(len(documents))
    best = np.where(is_relevant, scores, -np.inf).max(1, keepdims=True)
    ranks: Int[np.ndarray, " block"] = 1 + ((scores >= best) & ~is_relevant & ~is_itself).sum(1)
    return ranks


def _number(texts: dict[Hashable, None]) -> dict[Hashable, int]:
    return {text: number for number, text in enumerate(texts)}


def _select(
    embedded: EmbeddedTexts, texts: Sequence[Hashable], more: EmbeddedTexts | None = None
) -> Float[np.ndarray, "N D"]:
    """Return the vector of each of these texts, in their order."""
    vectors = {text: vector for side in (more, embedded) if side for text, vector in zip(*side, strict=True)}
    return np.stack([vectors[text] for text in texts])


def _unit(vectors: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    wide = vectors.astype(np.float64)
    unit: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    return unit
