"""Heads on an encoder: masked language modelling, pooling of texts, token classification.

Several texts share a row, so a head of texts returns S vectors per row: column s belongs to the s-th text, and columns
without a text are zeros. `Pooling` weights the tokens of a text:

    cls           the first token alone (BERT)
    last          the last token alone
    mean          all tokens equally (sentence-transformers)
    attention     ``softmax(score(q, h))`` with a learned q; several q are several hops (Lin et al. 2017)
    hierarchical  attention over the words of a sentence, then over sentences (Yang et al. 2016)
    max           in every dimension the token with the largest value
    concat        the token read last, max and mean side by side (ULMFiT, Howard and Ruder 2018, eq. 4)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

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
from regard.models.hierarchical_pooling import HierarchicalPooling, LevelWeights, SentenceLayout, lay_out_sentences
from regard.nn import (
    GRU,
    Attention,
    AttentionPooling,
    DotAttention,
    Dropout,
    Linear,
    Loss,
    RecurrentEncoderLayer,
    ScaledDotAttention,
    TanhAttention,
    Tap,
    linear_cross_entropy,
)

POOLINGS = ("cls", "mean", "attention", "hierarchical", "max", "last")
"""Poolings that give a vector of the width of the hidden states; a classifier may also have "concat"."""

N_CONCATENATED = 3
LEARNED_POOLINGS = ("attention", "hierarchical")
"""Poolings with weights of their own."""

PoolingQuery = Literal["learned", "ones"]
PoolingScore = Literal["scaled", "dot", "additive"]

POOLING_SCORES: dict[str, Callable[[int], Attention]] = {
    "scaled": lambda width: ScaledDotAttention(),
    "dot": lambda width: DotAttention(),
    "additive": lambda width: TanhAttention(width, width),
}


@dataclass(frozen=True, kw_only=True)
class AttentionPoolingConfig:
    """The attention of pooling: its hops, queries and score, and whether keys and values are projected.

    The additive score has a layer of its own over the keys, so only its values are projected.
    """

    n_hops: int = 1
    query: PoolingQuery = "learned"
    score: PoolingScore = "scaled"
    project: bool = False

    def build(self, width: int) -> AttentionPooling:
        """Return the pooling of vectors of this width."""
        projects_key = self.project and self.score != "additive"
        return AttentionPooling(
            width,
            n_hops=self.n_hops,
            learned=self.query == "learned",
            scorer=POOLING_SCORES[self.score](width),
            key_projection=Linear(width, width, bias=False) if projects_key else None,
            value_projection=Linear(width, width, bias=False) if self.project else None,
        )


PLAIN_ATTENTION = AttentionPoolingConfig()


def make_text_mask(rows: Rows, n_texts: int) -> Bool[Tensor, "B S T"]:
    """Return, for each of the first `n_texts` texts of a row, the mask of its tokens."""
    number = torch.arange(1, n_texts + 1, device=rows.segment.device)
    return rows.segment[:, None] == number[:, None]


class Pooling(nn.Module):
    """The vector of each text: a weighted sum of the hidden states of its tokens; R hops are concatenated.

    The weights of every kind but `max`, `concat` and `hierarchical` flow through the tap ``weights``; those of
    `hierarchical` through the taps of its two levels. That one has to know the tokens that close a sentence. The token
    read last is the last one, or the first one if the model `reads_backward`.
    """

    def __init__(
        self,
        kind: str,
        d_model: int,
        attention: AttentionPoolingConfig = PLAIN_ATTENTION,
        closing_tokens: Sequence[bool] = (),
        *,
        reads_backward: bool = False,
    ) -> None:
        super().__init__()
        assert kind in (*POOLINGS, "concat"), kind
        self.kind, self.width = kind, (N_CONCATENATED if kind == "concat" else attention.n_hops) * d_model
        self.final_token = "cls" if reads_backward else "last"
        self.weights = Tap()
        self.attention = attention.build(d_model) if kind == "attention" else None
        if self.attention is not None:
            self.weights = self.attention.weights
        self.hierarchy = _build_hierarchy(d_model, attention) if kind == "hierarchical" else None
        closing = torch.tensor(closing_tokens, dtype=torch.bool) if self.hierarchy is not None else None
        self.register_buffer("closing", closing, persistent=False)

    def forward(self, hidden: Float[Tensor, "B T D"], rows: Rows, n_texts: int) -> Float[Tensor, "B S RD"]:
        if self.kind == "max":
            return _max_pool(hidden, rows, n_texts)
        if self.hierarchy is not None:
            vectors: Tensor = self.hierarchy(hidden, self._lay_out(rows, n_texts))
            return vectors
        text_mask = make_text_mask(rows, n_texts)
        if self.kind == "concat":
            final, mean = (_average_tokens(kind, rows, text_mask, hidden) for kind in (self.final_token, "mean"))
            return torch.cat((final @ hidden, _max_pool(hidden, rows, n_texts), mean @ hidden), -1)
        if self.attention is not None:
            pooled: Tensor = self.attention(hidden, hidden, text_mask)  # (B, S, R, D)
            return pooled.flatten(2)
        weights: Tensor = self.weights(self.hop_weights(hidden, rows, text_mask))
        return weights[:, :, 0] @ hidden

    def level_weights(self, hidden: Float[Tensor, "B T D"], rows: Rows) -> tuple[SentenceLayout, LevelWeights] | None:
        """Return sentences and weights of both levels of the first text of each row; None without levels."""
        if self.hierarchy is None:
            return None
        layout = self._lay_out(rows, 1)
        return layout, self.hierarchy.level_weights(hidden, layout)

    def _lay_out(self, rows: Rows, n_texts: int) -> SentenceLayout:
        assert isinstance(self.closing, Tensor)
        return lay_out_sentences(rows, n_texts, self.closing)

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
        if self.hierarchy is not None:
            return self.hierarchy.token_weights(hidden, self._lay_out(rows, text_mask.shape[1]))[:, :, None]
        if self.attention is not None:
            return self.attention.hop_weights(hidden, text_mask)
        return _average_tokens(self.kind, rows, text_mask, hidden)[:, :, None]


def check_pooled_token(pooling: str, config: ModelConfig) -> None:
    """Refuse to pool the one token that attends only to itself."""
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


def _build_hierarchy(d_model: int, attention: AttentionPoolingConfig) -> HierarchicalPooling:
    """Return both levels of attention and the bidirectional GRU between them (Yang et al. 2016, section 2.2)."""
    assert d_model % 2 == 0, f"each direction of the sentence encoder has half of the width, found {d_model}"
    forward_rnn, backward_rnn = GRU(d_model, d_model // 2), GRU(d_model, d_model // 2)
    encoder = RecurrentEncoderLayer(forward_rnn, backward_rnn, 0.0)
    return HierarchicalPooling(attention.build(d_model), encoder, attention.build(d_model))


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
        self,
        config: EncoderModelConfig,
        pooling: str = "cls",
        attention: AttentionPoolingConfig = PLAIN_ATTENTION,
        closing_tokens: Sequence[bool] = (),
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.pooling = Pooling(
            pooling, width or config.d_model, attention, closing_tokens, reads_backward=config.reads_backward
        )
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
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[config.activation.removeprefix("gated-")]
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
