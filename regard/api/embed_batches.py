"""Embed batches of texts of which some may be empty: the rule for an empty text, for the Python API and `regard embed`.

An empty text has no vector: its row is NaN, so that row i is still text i. It has no words and no tokens either.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from regard.predict.embedding import Embedder, NamedVectors


def embed_batch(embedder: Embedder, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
    """Return the vector of each text, NaN in every dimension for an empty text."""
    vectors = np.full((len(texts), embedder.model.config.d_model), np.nan, np.float32)
    if indices := non_empty_indices(texts):
        vectors[indices] = embedder.embed_texts([texts[index] for index in indices])
    return vectors


def embed_batch_words_or_tokens(embedder: Embedder, texts: Sequence[str]) -> list[NamedVectors]:
    """Return the vectors of the words or tokens of each text, none for an empty text."""
    no_vectors = np.zeros((0, embedder.model.config.d_model), np.float32)
    named = [NamedVectors([], no_vectors) for _ in texts]
    if indices := non_empty_indices(texts):
        embedded = embedder.embed_words_or_tokens([texts[index] for index in indices])
        for index, each in zip(indices, embedded, strict=True):
            named[index] = each
    return named


def non_empty_indices(texts: Sequence[str]) -> list[int]:
    """Return the indices of the texts with at least one character that is not a space."""
    return [index for index, text in enumerate(texts) if text.strip()]
