"""Transformer layers and stacks: feed-forward, residual connection with norm, encoder and decoder layers, embeddings.

The placement of the norm is a module around each sublayer:

    post (Vaswani, BERT)   x ──┬── sublayer ── dropout ── + ── norm ──>
                               └───────────────────────────┘
    pre (GPT-2)            x ──┬── norm ── sublayer ── dropout ── + ──>
                               └──────────────────────────────────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.dropout import Dropout
from regard.nn.kernels import dispatch
from regard.nn.kv_cache import KeyValue, KVCache, KVCacheLike
from regard.nn.linear_layers import Linear
from regard.nn.mask import AttentionMask
from regard.nn.multihead import MultiHeadAttention
from regard.nn.positions import Positions
from regard.nn.tap import Tap

Activation = Callable[[Tensor], Tensor]
Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """``norm(x + dropout(sublayer(x)))``."""

    def __init__(self, d_model: int, dropout: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], sublayer: Sublayer) -> Float[Tensor, "B T D"]:
        result: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return result


class PreNorm(nn.Module):
    """``x + dropout(sublayer(norm(x)))``; a pre-norm stack needs a final norm."""

    def __init__(self, d_model: int, dropout: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], sublayer: Sublayer) -> Float[Tensor, "B T D"]:
        result: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return result


ResidualFactory = Callable[[], PostNorm | PreNorm]


class FeedForward(nn.Module):
    """``activation(x W_1 + b_1) W_2 + b_2`` at each position (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation) -> None:
        super().__init__()
        self.up_projection = Linear(d_model, d_ff)
        self.activation = activation
        self.down_projection = Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        result: Tensor = self.down_projection(self.activation(self.up_projection(x)))
        return result


class GatedFeedForward(nn.Module):
    """``(activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2`` (Shazeer 2020); W_g and W_1 are stacked."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation) -> None:
        super().__init__()
        self.up_projection = Linear(d_model, 2 * d_ff)
        self.activation = activation
        self.down_projection = Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        gate, value = self.up_projection(x).chunk(2, dim=-1)
        result: Tensor = self.down_projection(self.activation(gate) * value)
        return result


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, attention: MultiHeadAttention, feed_forward: nn.Module, make_residual: ResidualFactory) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_residual, self.feed_forward_residual = make_residual(), make_residual()
        self.out = Tap()

    def forward(
        self, x: Float[Tensor, "B T D"], attention_mask: AttentionMask, cache: KVCacheLike | None = None
    ) -> Float[Tensor, "B T D"]:
        x = self.attention_residual(x, lambda x: self.attention(x, attention_mask, cache))
        result: Tensor = self.out(self.feed_forward_residual(x, self.feed_forward))
        return result


class DecoderLayer(nn.Module):
    """Masked self-attention, then cross-attention, then feed-forward."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        make_residual: ResidualFactory,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.attention_residual = make_residual()
        self.cross_attention_residual = make_residual()
        self.feed_forward_residual = make_residual()
        self.out = Tap()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cross_kv: KeyValue,
        attention_mask: AttentionMask,
        cross_attention_mask: AttentionMask,
        cache: KVCacheLike | None = None,
    ) -> Float[Tensor, "B T D"]:
        x = self.attention_residual(x, lambda x: self.attention(x, attention_mask, cache))
        x = self.cross_attention_residual(
            x, lambda x: self.cross_attention.cross_attend(x, cross_kv, cross_attention_mask)
        )
        result: Tensor = self.out(self.feed_forward_residual(x, self.feed_forward))
        return result


class EncoderStack(nn.ModuleList):
    """A stack of encoder layers; also of a decoder-only model, where the mask makes attention causal."""

    def __init__(self, layers: Iterable[EncoderLayer]) -> None:
        super().__init__(layers)

    def forward(
        self, x: Float[Tensor, "B T D"], attention_mask: AttentionMask, caches: Sequence[KVCacheLike] | None = None
    ) -> Float[Tensor, "B T D"]:
        for i, layer in enumerate(self):
            x = layer(x, attention_mask, None if caches is None else caches[i])
        return x


class DecoderStack(nn.ModuleList):
    """A stack of decoder layers."""

    def __init__(self, layers: Iterable[DecoderLayer]) -> None:
        super().__init__(layers)

    def project_kv(self, encoded: Float[Tensor, "B S D"], position: Int[Tensor, "B S"]) -> list[KeyValue]:
        """Return the cross-attention keys and values of each layer, computed once per encoded text."""
        return [layer.cross_attention.project_kv(encoded, position) for layer in self]  # type: ignore[union-attr, operator]

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cross_kv: Sequence[KeyValue | KVCache],
        attention_mask: AttentionMask,
        cross_attention_mask: AttentionMask,
        caches: Sequence[KVCacheLike] | None = None,
    ) -> Float[Tensor, "B T D"]:
        if caches is not None:
            return dispatch.decoder_layers(self, x, cross_kv, attention_mask, cross_attention_mask, caches)
        for layer, kv in zip(self, cross_kv, strict=True):
            x = layer(x, kv.contents(), attention_mask, cross_attention_mask)
        return x


class TokenEmbedding(nn.Module):
    """Token embedding, scaled by ``sqrt(d_model)`` on request, plus absolute positions; then norm and dropout.

    With `n_token_types` a learned embedding of the token type is added (BERT's segment embedding, sentence A or B).
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        positions: Positions,
        *,
        dropout: float,
        scaled: bool = True,
        norm: nn.Module | None = None,
        n_token_types: int = 0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, d_model)
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.positions = positions
        self.token_types = nn.Embedding(n_token_types, d_model) if n_token_types else None
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(
        self, ids: Int[Tensor, "B T"], position: Int[Tensor, "B T"], token_type_ids: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        x = self.positions.embed(self.tokens(ids) * self.scale, position)
        if self.token_types is not None and token_type_ids is not None:
            x = x + self.token_types(token_type_ids)
        result: Tensor = self.out(self.dropout(self.norm(x)))
        return result
