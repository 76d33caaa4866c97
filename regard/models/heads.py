"""Heads on an encoder: masked language modelling, pooling of texts, token classification.

Several texts share a row, so a head of texts returns S vectors per row: column s belongs to the s-th text, and columns
without a text are zeros. `Pooling` weights the tokens of a text:

    cls         the first token alone (BERT)
    last        the last token alone
    mean        all tokens equally (sentence-transformers)
    attention   ``softmax(h q / sqrt(d))`` with a learned q; several q are several hops (Lin et al. 2017)
    max         in every dimension the token with the largest value
    concat      three vectors side by side: the token read last, max and mean (ULMFiT, Howard and Ruder 2018, eq. 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.errors import ConfigError
from regard.models.blocks import ACTIVATIONS
from regard.models.config import (
    DirectedEncoderConfig,
    EncoderModelConfig,
    ModelConfig,
    TransformerEncoderConfig,
)
from regard.nn import AttentionPooling, Dropout, Linear, Loss, Tap, linear_cross_entropy

POOLINGS = ("cls", "mean", "attention", "max", "last")
"""Poolings that give a vector of the width of the hidden states; a classifier may also have "concat"."""

N_CONCATENATED = 3


def make_text_mask(rows: Rows, n_texts: int) -> Bool[Tensor, "B S T"]:
    """Return, for each of the first `n_texts` texts of a row, the mask of its tokens."""
    number = torch.arange(1, n_texts + 1, device=rows.segment.device)
    return rows.segment[:, None] == number[:, None]


class Pooling(nn.Module):
    """The vector of each text: a weighted sum of the hidden states of its tokens; R hops are concatenated.

    The weights of every kind but `max` and `concat` flow through the tap ``weights``. The token read last is the last
    one, or the first one if the model `reads_backward`.
    """

    def __init__(self, kind: str, d_model: int, n_hops: int = 1, *, reads_backward: bool = False) -> None:
        super().__init__()
        assert kind in (*POOLINGS, "concat"), kind
        self.kind, self.width = kind, (N_CONCATENATED if kind == "concat" else n_hops) * d_model
        self.final_token = "cls" if reads_backward else "last"
        self.weights = Tap()
        self.attention = AttentionPooling(d_model, n_hops=n_hops) if kind == "attention" else None
        if self.attention is not None:
            self.attention.weights = self.weights

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S RD"]:
        if self.kind == "max":
            return _max_pool(hidden, rows, n_texts)
        text_mask = make_text_mask(rows, n_texts)
        if self.kind == "concat":
            final, mean = (_average_tokens(kind, rows, text_mask, hidden) for kind in (self.final_token, "mean"))
            return torch.cat((final @ hidden, _max_pool(hidden, rows, n_texts), mean @ hidden), -1)
        if self.attention is not None:
            pooled: Tensor = self.attention(hidden, hidden, text_mask)  # (B, S, R, D)
            return pooled.flatten(2)
        weights: Tensor = self.weights(self.hop_weights(hidden, rows, text_mask))
        return weights[:, :, 0] @ hidden

    def text_vectors(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        """Return one vector per text of the width of the hidden states: the mean over hops."""
        pooled: Tensor = self(hidden, rows, n_texts)
        return pooled.view(*pooled.shape[:2], -1, hidden.shape[-1]).mean(2)

    def token_weights(
        self, hidden: Float[Tensor, "B T D"], rows: Rows, text_mask: Bool[Tensor, "B S T"]
    ) -> Float[Tensor, "B S T"]:
        """Return the weight of each token in each text, averaged over hops; the sum is 1, or 0 for an empty text."""
        return self.hop_weights(hidden, rows, text_mask).mean(2)

    def hop_weights(
        self, hidden: Float[Tensor, "B T D"], rows: Rows, text_mask: Bool[Tensor, "B S T"]
    ) -> Float[Tensor, "B S R T"]:
        """Return the weights of each hop; for `max`, the fraction of dimensions in which a token is largest."""
        if self.kind == "max":
            return _max_pool_fractions(hidden, text_mask)
        if self.kind == "concat":
            final, mean = (_average_tokens(kind, rows, text_mask, hidden) for kind in (self.final_token, "mean"))
            return torch.stack((final, _max_pool_fractions(hidden, text_mask)[:, :, 0], mean), 2)
        if self.attention is not None:
            return self.attention.hop_weights(hidden, text_mask)
        return _average_tokens(self.kind, rows, text_mask, hidden)[:, :, None]


def check_pooled_token(pooling: str, config: ModelConfig) -> None:
    """Refuse to pool the one token that has read nothing but itself."""
    if not isinstance(config, DirectedEncoderConfig) or not config.is_causal:
        return
    unread, final = ("last", "cls") if config.reads_backward else ("cls", "last")
    if pooling == unread:
        problem = f'that token has read no other, since model.directions = "{config.directions}"'
        raise ConfigError(f'task.pooling = "{pooling}": {problem}; choose "{final}" or "concat"')


def _average_tokens(
    kind: str, rows: Rows, text_mask: Bool[Tensor, "B S T"], hidden: Float[Tensor, "B T D"]
) -> Float[Tensor, "B S T"]:
    """Return equal weights of the tokens that `cls`, `last` and `mean` average; their sum is 1, or 0 without a text."""
    counted = _pooled_tokens(kind, rows, text_mask).to(hidden.dtype)
    return counted / counted.sum(-1, keepdim=True).clamp(min=1)


def _pooled_tokens(kind: str, rows: Rows, text_mask: Bool[Tensor, "B S T"]) -> Bool[Tensor, "B S T"]:
    """Return the mask of the tokens that `cls`, `last` and `mean` average."""
    if kind == "cls":
        return text_mask & (rows.position == 0)[:, None]
    return text_mask & (text_mask.cumsum(-1) == text_mask.sum(-1, keepdim=True)) if kind == "last" else text_mask


def _max_pool(hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
    """Return the largest value of each text in each dimension; zeros for an empty text."""
    if n_texts == 1:
        largest = hidden.masked_fill((rows.segment != 1)[..., None], -math.inf).amax(1, keepdim=True)
    else:
        initial = hidden.new_full((len(hidden), n_texts + 1, hidden.shape[-1]), -math.inf)
        text = rows.segment.clamp(max=n_texts)[..., None].expand_as(hidden).long()
        largest = initial.scatter_reduce(1, text, hidden, "amax")[:, 1:]
    return largest.masked_fill(largest == -math.inf, 0.0)


def _max_pool_fractions(hidden: Float[Tensor, "B T D"], text_mask: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S 1 T"]:
    by_text = hidden[:, None].masked_fill(~text_mask[..., None], -math.inf)  # (B, S, T, D)
    fractions = torch.zeros_like(by_text).scatter(2, by_text.argmax(2, keepdim=True), 1.0).mean(-1)
    return (fractions * text_mask)[:, :, None]


class Pooler(nn.Module):
    """Pooling followed by a dense layer, as on BERT's [CLS]: ``activation(pooled W + b)`` (Devlin et al. 2019).

    `width` is that of the pooled vectors where they are not the hidden states of one layer.
    """

    def __init__(
        self, config: EncoderModelConfig, pooling: str = "cls", n_hops: int = 1, width: int | None = None
    ) -> None:
        super().__init__()
        self.pooling = Pooling(pooling, width or config.d_model, n_hops, reads_backward=config.reads_backward)
        self.dense = Linear(self.pooling.width, config.d_model)
        self.activation = ACTIVATIONS[config.pooler]
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Float[Tensor, "B T W"], rows: Rows, n_texts: int) -> Float[Tensor, "B S D"]:
        pooled: Tensor = self.dropout(self.activation(self.dense(self.pooling(hidden, rows, n_texts))))
        return pooled


class MaskedLMHead(nn.Module):
    """Masked language modelling: ``norm(activation(h W + b)) E^T + c`` with E the output embedding (BERT)."""

    def __init__(self, config: TransformerEncoderConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.output_embedding = None if config.tied else nn.Embedding(vocabulary_size, config.d_model)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, hidden: Float[Tensor, "*B D"], embedding: Float[Tensor, "V D"]) -> Float[Tensor, "*B V"]:
        """Return logits over the vocabulary; `embedding` is the input embedding, used where weights are tied."""
        return self._transform(hidden) @ self._output_weight(embedding).T + self.bias

    def loss(self, hidden: Float[Tensor, "N D"], embedding: Float[Tensor, "V D"], labels: Int[Tensor, " N"]) -> Loss:
        """Return the cross-entropy of the original tokens."""
        return linear_cross_entropy(self._transform(hidden), self._output_weight(embedding), labels, bias=self.bias)

    def _transform(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        transformed: Tensor = self.norm(self.activation(self.dense(hidden)))
        return transformed

    def _output_weight(self, embedding: Float[Tensor, "V D"]) -> Float[Tensor, "V D"]:
        return embedding if self.output_embedding is None else self.output_embedding.weight


class TokenClassificationHead(nn.Module):
    """Logits over the labels for every token; `width` is that of its input where that is not one layer."""

    def __init__(self, config: EncoderModelConfig, n_labels: int, width: int | None = None) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.out = Linear(width or config.d_model, n_labels)

    def forward(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T C"]:
        logits: Tensor = self.out(self.dropout(hidden))
        return logits
