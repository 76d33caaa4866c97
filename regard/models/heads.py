"""What stands on an encoder: the masked-word head, the vector of a text, and classes of texts and tokens.

Texts share rows, so a head of texts gets S places for them: the s-th text of a row is at column s, empty ones are
zeros. `Pooling` says how much each token counts in the vector of its text:

    cls         all is the first token (BERT)
    last        all is the last token
    mean        all tokens alike (sentence-transformers)
    attention   ``softmax(h q / sqrt(d))`` with a trained q (SPEC 1.5); several q are so many hops (Lin et al. 2017)
    max         in every dimension the token with the largest value
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import ACTIVATIONS
from regard.models.config import EncoderModelConfig, TransformerEncoderConfig
from regard.nn import AttentionPooling, Dropout, Linear, Loss, Tap, linear_cross_entropy

POOLINGS = ("cls", "mean", "attention", "max", "last")


def make_text_mask(rows: Rows, n_texts: int) -> Bool[Tensor, "B S T"]:
    """Which tokens belong to each text of a row."""
    number = torch.arange(1, n_texts + 1, device=rows.segment.device)
    return rows.segment[:, None] == number[:, None]


class Pooling(nn.Module):
    """What becomes of each text: a weighted sum of what its tokens became, of several hops one beside the other."""

    def __init__(self, kind: str, d_model: int, n_hops: int = 1) -> None:
        super().__init__()
        assert kind in POOLINGS, kind
        self.kind, self.width = kind, n_hops * d_model
        self.attention = AttentionPooling(d_model, n_hops=n_hops) if kind == "attention" else None
        self.weights = Tap()

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S RD"]:
        if self.kind == "max":
            return _max_pool(hidden, rows, n_texts)
        weights: Tensor = self.weights(self.hop_weights(hidden, rows, make_text_mask(rows, n_texts)))
        pooled = weights.flatten(1, 2) @ hidden  # (B, S R, D)
        return pooled.view(*weights.shape[:2], -1)

    def text_vectors(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        """One vector for each text, as wide as those of its tokens: the mean of all hops."""
        pooled: Tensor = self(hidden, rows, n_texts)
        return pooled.view(*pooled.shape[:2], -1, hidden.shape[-1]).mean(2)

    def token_weights(
        self, hidden: Float[Tensor, "B T D"], rows: Rows, text_mask: Bool[Tensor, "B S T"]
    ) -> Float[Tensor, "B S T"]:
        """How much each token counts in each text; rows of weights sum to 1, or to 0 where there is no text."""
        return self.hop_weights(hidden, rows, text_mask).mean(2)

    def hop_weights(
        self, hidden: Float[Tensor, "B T D"], rows: Rows, text_mask: Bool[Tensor, "B S T"]
    ) -> Float[Tensor, "B S R T"]:
        """The same for each hop; of `max`, the share of dimensions in which a token has the largest value."""
        if self.kind == "max":
            return _max_pool_fractions(hidden, text_mask)
        if self.attention is None:
            counted = _pooled_tokens(self.kind, rows, text_mask).to(hidden.dtype)
            return (counted / counted.sum(-1, keepdim=True).clamp(min=1))[:, :, None]
        scores = (hidden @ self.attention.query.T / math.sqrt(hidden.shape[-1])).mT[:, None]  # (B, 1, R, T)
        blank = ~text_mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~(text_mask | blank)[:, :, None], -math.inf)
        return scores.softmax(-1).masked_fill(blank[:, :, None], 0.0)


def _pooled_tokens(kind: str, rows: Rows, text_mask: Bool[Tensor, "B S T"]) -> Bool[Tensor, "B S T"]:
    """The tokens that count, all of them alike."""
    if kind == "cls":
        return text_mask & (rows.position == 0)[:, None]
    return text_mask & (text_mask.cumsum(-1) == text_mask.sum(-1, keepdim=True)) if kind == "last" else text_mask


def _max_pool(hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
    """The largest value of each text in each dimension; zeros where there is no text."""
    if n_texts == 1:
        largest = hidden.masked_fill((rows.segment != 1)[..., None], -math.inf).amax(1, keepdim=True)
    else:
        nothing = hidden.new_full((len(hidden), n_texts + 1, hidden.shape[-1]), -math.inf)
        text = rows.segment.clamp(max=n_texts)[..., None].expand_as(hidden).long()
        largest = nothing.scatter_reduce(1, text, hidden, "amax")[:, 1:]
    return largest.masked_fill(largest == -math.inf, 0.0)


def _max_pool_fractions(hidden: Float[Tensor, "B T D"], text_mask: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S 1 T"]:
    alone = hidden[:, None].masked_fill(~text_mask[..., None], -math.inf)  # (B, S, T, D)
    won = torch.zeros_like(alone).scatter(2, alone.argmax(2, keepdim=True), 1.0).mean(-1)
    return (won * text_mask)[:, :, None]


class Pooler(nn.Module):
    """The vector of a text through one more layer, as BERT's [CLS]: ``activation(pooled W + b)``."""

    def __init__(self, config: EncoderModelConfig, pooling: str = "cls", n_hops: int = 1) -> None:
        super().__init__()
        self.pooling = Pooling(pooling, config.d_model, n_hops)
        self.dense = Linear(self.pooling.width, config.d_model)
        self.activation = ACTIVATIONS[config.pooler]
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        pooled: Tensor = self.dropout(self.activation(self.dense(self.pooling(hidden, rows, n_texts))))
        return pooled


class MaskedLMHead(nn.Module):
    """Which word stands here: ``norm(activation(h W + b))`` against the vector of every word."""

    def __init__(self, config: TransformerEncoderConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.words = None if config.tied else nn.Embedding(vocabulary_size, config.d_model)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, hidden: Float[Tensor, "*B D"], embedding: Float[Tensor, "V D"]) -> Float[Tensor, "*B V"]:
        """Scores of every word; `embedding` are the vectors of words that enter the body."""
        return self._transform(hidden) @ self._output_embedding(embedding).T + self.bias

    def loss(self, hidden: Float[Tensor, "N D"], embedding: Float[Tensor, "V D"], labels: Int[Tensor, " N"]) -> Loss:
        """The cross-entropy of the words that should stand there."""
        return linear_cross_entropy(self._transform(hidden), self._output_embedding(embedding), labels, bias=self.bias)

    def _transform(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        made: Tensor = self.norm(self.activation(self.dense(hidden)))
        return made

    def _output_embedding(self, embedding: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        return embedding if self.words is None else self.words.weight


class TokenClassificationHead(nn.Module):
    """A score of every label for every token."""

    def __init__(self, config: EncoderModelConfig, n_labels: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.out = Linear(config.d_model, n_labels)

    def forward(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T C"]:
        scores: Tensor = self.out(self.dropout(hidden))
        return scores
