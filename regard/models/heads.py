"""What stands on an encoder: the masked-word head, the vector of a text, and classes of texts and tokens.

Texts share rows, so a head of texts gets S places for them: the s-th text of a row is at column s, empty ones are
zeros. `Pooling` says how much each token counts in the vector of its text:

    cls         all is the first token (BERT)
    mean        all tokens alike (sentence-transformers)
    attention   ``softmax(h q / sqrt(d))`` with a trained q (SPEC 1.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import ACTIVATIONS
from regard.models.presets import EncoderConfig
from regard.nn import AttentionPooling, Dropout, Linear, Loss, Tap, linear_cross_entropy

POOLINGS = ("cls", "mean", "attention")


def of_texts(rows: Rows, n_texts: int) -> Bool[Tensor, "B S T"]:
    """Which tokens belong to each text of a row."""
    number = torch.arange(1, n_texts + 1, device=rows.segment.device)
    return rows.segment[:, None] == number[:, None]


class Pooling(nn.Module):
    """One vector for each text: a weighted sum of what its tokens became."""

    def __init__(self, kind: str, d_model: int) -> None:
        super().__init__()
        assert kind in POOLINGS, kind
        self.kind = kind
        self.attention = AttentionPooling(d_model) if kind == "attention" else None
        self.weights = Tap()

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        weights: Tensor = self.weights(self.weigh(hidden, rows, of_texts(rows, n_texts)))
        return weights @ hidden

    def weigh(self, hidden: Float[Tensor, "B T D"], rows: Rows, own: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S T"]:
        """How much each token counts in each text; rows of weights sum to 1, or to 0 where there is no text."""
        if self.kind == "cls":
            return (own & (rows.position == 0)[:, None]).to(hidden.dtype)
        if self.attention is None:
            return own.to(hidden.dtype) / own.sum(-1, keepdim=True).clamp(min=1)
        scores = (hidden @ self.attention.query[0] / math.sqrt(hidden.shape[-1]))[:, None]
        blank = ~own.any(-1, keepdim=True)
        return scores.masked_fill(~(own | blank), -math.inf).softmax(-1).masked_fill(blank, 0.0)


class Pooler(nn.Module):
    """The vector of a text through one more layer, as BERT's [CLS]: ``activation(pooled W + b)``."""

    def __init__(self, config: EncoderConfig, pooling: str = "cls") -> None:
        super().__init__()
        self.pooling = Pooling(pooling, config.d_model)
        self.dense = Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.pooler]
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        pooled: Tensor = self.dropout(self.activation(self.dense(self.pooling(hidden, rows, n_texts))))
        return pooled


class MaskedHead(nn.Module):
    """Which word stands here: ``norm(activation(h W + b))`` against the vector of every word."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.words = None if config.tied else nn.Embedding(vocabulary, config.d_model)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Float[Tensor, "*B D"], embedding: Float[Tensor, "V D"]) -> Float[Tensor, "*B V"]:
        """Scores of every word; `embedding` are the vectors of words that enter the body."""
        return self._made(hidden) @ self._words(embedding).T + self.bias

    def loss(self, hidden: Float[Tensor, "N D"], embedding: Float[Tensor, "V D"], wanted: Int[Tensor, " N"]) -> Loss:
        """The cross-entropy of the words that should stand there."""
        return linear_cross_entropy(self._made(hidden), self._words(embedding), wanted, bias=self.bias)

    def _made(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        made: Tensor = self.norm(self.activation(self.dense(hidden)))
        return made

    def _words(self, embedding: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        return embedding if self.words is None else self.words.weight


class TagHead(nn.Module):
    """A score of every label for every token."""

    def __init__(self, config: EncoderConfig, n_labels: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.out = Linear(config.d_model, n_labels)

    def forward(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T C"]:
        scores: Tensor = self.out(self.dropout(hidden))
        return scores
