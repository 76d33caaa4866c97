"""Hierarchical attention pooling of documents: words, then sentences (Yang et al. 2016).

    tokens of a sentence  ── attention ──>  vector of the sentence
    vectors of sentences  ── bidirectional GRU ── attention ──>  vector of the document

Words are encoded in the context of the whole document, by any encoder; in Yang et al. 2016 only in that of their
sentence. Sentence boundaries are found by tokens (text/sentence_boundaries.py). models/heads.py calls this.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.nn import AttentionPooling, RecurrentEncoderLayer

PLANNED_SENTENCE_LENGTH = 16
"""Tokens of a sentence in the training plan, which has the shapes of batches but no values."""


class SentenceLayout(NamedTuple):
    """The M sentences of a row in order, and the N sentences of each of its S texts.

    `tokens` are the tokens of each sentence, `sentence_index` the sentences of each text among the M, and `mask` which
    of the N there are.
    """

    tokens: Bool[Tensor, "B M T"]
    sentence_index: Int[Tensor, "B S N"]
    mask: Bool[Tensor, "B S N"]


def number_sentences(rows: Rows, closing: Bool[Tensor, " V"]) -> Int[Tensor, "B T"]:
    """Return the number of each token's sentence in its row, from 1; 0 for padding.

    A sentence starts with a text, and with a token that follows a closing token and is none itself.
    """
    is_closing = closing[rows.ids.long()]
    follows = is_closing.roll(1, -1) & ~is_closing
    starts = (follows | (rows.position == 0)) & (rows.segment > 0)
    return starts.cumsum(-1) * (rows.segment > 0)


def lay_out_sentences(rows: Rows, n_texts: int, closing: Bool[Tensor, " V"]) -> SentenceLayout:
    """Return the sentences of rows, by the tokens that close one."""
    number = number_sentences(rows, closing)
    tokens = number[:, None] == _count_up(_largest(number), number)[:, None]  # (B, M, T)
    text = (rows.segment[:, None] * tokens).amax(-1)  # (B, M): the text of each sentence
    own = text[:, None] == _count_up(n_texts, text)[:, None]  # (B, S, M)
    counts, first = own.sum(-1, keepdim=True), own.int().argmax(-1, keepdim=True)  # (B, S, 1)
    index = _count_up(_largest(counts, tokens.shape[1]), counts) - 1
    return SentenceLayout(tokens, (first + index).clamp(max=tokens.shape[1] - 1), index < counts)


def _count_up(count: int, like: Int[Tensor, ...]) -> Int[Tensor, " N"]:
    """Return the numbers from 1 in the type of another tensor."""
    return torch.arange(1, count + 1, dtype=like.dtype, device=like.device)


def _largest(number: Int[Tensor, ...], planned: int | None = None) -> int:
    """Return the largest number, at least 1; on the meta device, which has no values, a typical one."""
    if number.is_meta:
        return planned or max(1, number.shape[-1] // PLANNED_SENTENCE_LENGTH)
    return max(1, int(number.amax()))


class LevelWeights(NamedTuple):
    """The weights of both levels: of each token in its sentence, and of each sentence in its text."""

    words: Float[Tensor, "B T"]
    sentences: Float[Tensor, "B S N"]


class HierarchicalPooling(nn.Module):
    """Attention over the tokens of each sentence, a sentence encoder, and attention over the sentences of each text.

    Taps: ``words.weights`` (B, sentences of the row, 1, T) and ``sentences.weights`` (texts, 1, 1, sentences).
    """

    def __init__(
        self, words: AttentionPooling, sentence_encoder: RecurrentEncoderLayer, sentences: AttentionPooling
    ) -> None:
        super().__init__()
        self.words, self.sentence_encoder, self.sentences = words, sentence_encoder, sentences

    def forward(self, hidden: Float[Tensor, "B T D"], layout: SentenceLayout) -> Float[Tensor, "B S D"]:
        """Return the vector of each text; zeros for an empty text."""
        vectors = self.words(hidden, hidden, layout.tokens)[:, :, 0]  # (B, M, D)
        encoded = self._encode_sentences(vectors, layout)
        pooled: Tensor = self.sentences(encoded, encoded, layout.mask.flatten(0, 1)[:, None])
        return pooled.view(*layout.mask.shape[:2], -1)

    def level_weights(self, hidden: Float[Tensor, "B T D"], layout: SentenceLayout) -> LevelWeights:
        """Return the weights of both levels, unseen by the taps."""
        by_sentence = self.words.hop_weights(hidden, layout.tokens)[:, :, 0]  # (B, M, T)
        encoded = self._encode_sentences(by_sentence @ self.words.value_projection(hidden), layout)
        sentences = self.sentences.hop_weights(encoded, layout.mask.flatten(0, 1)[:, None])
        return LevelWeights(by_sentence.sum(1), sentences.view(layout.mask.shape))

    def token_weights(self, hidden: Float[Tensor, "B T D"], layout: SentenceLayout) -> Float[Tensor, "B S T"]:
        """Return the weight of each token in its sentence times that of the sentence in its text."""
        words, sentences = self.level_weights(hidden, layout)
        by_text = sentences.new_zeros(*sentences.shape[:2], layout.tokens.shape[1])  # (B, S, M)
        by_text.scatter_add_(-1, layout.sentence_index, sentences)  # what is not there has the weight 0
        return by_text @ (words[:, None] * layout.tokens)

    def _encode_sentences(self, vectors: Float[Tensor, "B M D"], layout: SentenceLayout) -> Float[Tensor, "BS N D"]:
        """Return the encoded sentences of each text, which has a row of its own; in the precision of the weights."""
        rows = torch.arange(len(vectors), device=vectors.device)[:, None, None]
        by_text = vectors[rows, layout.sentence_index] * layout.mask[..., None]  # (B, S, N, D)
        with nullcontext() if vectors.is_meta else torch.autocast(vectors.device.type, enabled=False):
            encoded: Tensor = self.sentence_encoder(
                by_text.flatten(0, 1).to(self.words.query.dtype), layout.mask.sum(-1).flatten()
            )
        return encoded
