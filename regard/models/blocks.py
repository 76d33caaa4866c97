"""Modules of regard.nn built from the names in a config: positions, norms, activations, layers; weight initialisation.

Models compose their stacks from these functions; nothing below models/ knows a config.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.config import TransformerConfig
from regard.nn import (
    AttentionPooling,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    Positions,
    PostNorm,
    PreNorm,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
    gelu,
    gelu_tanh,
)

EMBEDDING_POSITIONS: dict[str, Callable[[TransformerConfig], Positions]] = {
    "sinusoidal": lambda config: SinusoidalPositions(config.d_model, config.sinusoid_base),
    "sinusoidal-halves": lambda config: SinusoidalPositions(config.d_model, config.sinusoid_base, halves=True),
    "learned": lambda config: LearnedPositions(config.n_positions, config.d_model, offset=config.first_position),
    **dict.fromkeys(("relative", "relative-values", "rotary", "none"), lambda config: NoPositions()),
}
"""Position schemes as the embedding sees them."""

ATTENTION_POSITIONS: dict[str, Callable[[TransformerConfig], Positions]] = {
    "relative": lambda config: RelativePositions(config.key_width),
    "relative-values": lambda config: RelativePositions(config.key_width, d_value=config.value_width),
    "rotary": lambda config: RotaryPositions(config.key_width, config.sinusoid_base),
    **dict.fromkeys(("sinusoidal", "sinusoidal-halves", "learned", "none"), lambda config: NoPositions()),
}
"""Position schemes as each self-attention sees them."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "silu": F.silu,
    "tanh": torch.tanh,
}

RESIDUALS: dict[str, type[PostNorm] | type[PreNorm]] = {"post": PostNorm, "pre": PreNorm}


def build_embedding(config: TransformerConfig, vocabulary_size: int, n_token_types: int = 0) -> TokenEmbedding:
    """Return the input embedding with its position scheme."""
    return TokenEmbedding(
        vocabulary_size,
        config.d_model,
        EMBEDDING_POSITIONS[config.positions](config),
        dropout=config.dropout,
        scaled=config.embedding == "scaled",
        norm=_build_norm(config) if config.embedding == "normed" else nn.Identity(),
        n_token_types=n_token_types,
    )


def build_feed_forward(config: TransformerConfig) -> nn.Module:
    """Return the feed-forward sublayer; an activation named ``gated-*`` makes it gated."""
    kind = GatedFeedForward if config.activation.startswith("gated-") else FeedForward
    return kind(config.d_model, config.d_ff, ACTIVATIONS[config.activation.removeprefix("gated-")])


def build_self_attention(config: TransformerConfig) -> MultiHeadAttention:
    """Return a self-attention, with its position scheme if it has one of its own."""
    return _build_attention(config, ATTENTION_POSITIONS[config.positions](config))


def _build_attention(config: TransformerConfig, positions: Positions) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model, config.n_heads, d_key=config.key_width, d_value=config.value_width, positions=positions
    )


def build_encoder_layer(config: TransformerConfig) -> EncoderLayer:
    """Return one encoder layer."""
    return EncoderLayer(
        build_self_attention(config),
        build_feed_forward(config),
        partial(RESIDUALS[config.norm], config.d_model, config.dropout, config.norm_eps),
    )


def build_decoder_layer(config: TransformerConfig) -> DecoderLayer:
    """Return one decoder layer with cross-attention."""
    return DecoderLayer(
        build_self_attention(config),
        _build_attention(config, NoPositions()),
        build_feed_forward(config),
        partial(RESIDUALS[config.norm], config.d_model, config.dropout, config.norm_eps),
    )


def build_final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm that ends a pre-norm stack, or an identity after post-norm layers."""
    return _build_norm(config) if config.norm == "pre" else nn.Identity()


def _build_norm(config: TransformerConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, config.norm_eps)


@torch.no_grad()
def initialise_weights(model: nn.Module, generator: torch.Generator, std: float = 0.0) -> None:
    """Initialise every weight of a model; no other code initialises weights.

    embeddings              normal, standard deviation width^-0.5, or `std`
    recurrent matrices      uniform in +- width^-0.5; the forget gates of an LSTM start with a bias of 1
    matrices                uniform in +- sqrt(6 / (fan_in + fan_out)) (Glorot), W_Q, W_K, W_V separately;
                            with `std`, normal with that standard deviation (BERT, GPT-2)
    pooling queries         normal, standard deviation 1, or width^-0.5 where the score does not divide by its root
    biases                  0
    norms                   gain 1, shift 0
    """

    def draw(weight: Tensor) -> None:
        bound = math.sqrt(6 / sum(weight.shape))
        if std:
            weight.normal_(0.0, std, generator=generator)
        else:
            weight.uniform_(-bound, bound, generator=generator)

    stacked = {module.projection for module in model.modules() if isinstance(module, MultiHeadAttention)}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, std or module.embedding_dim**-0.5, generator=generator)
        elif isinstance(module, MultiHeadAttention):
            for part in module.projection.weight.split(module.qkv_widths):
                draw(part)
        elif isinstance(module, nn.Linear) and module not in stacked:
            draw(module.weight)
        elif isinstance(module, AttentionPooling) and module.query.requires_grad:
            module.query.normal_(0.0, module.query_std, generator=generator)
        elif isinstance(module, nn.LSTM | nn.GRU):
            _initialise_rnn(module, generator)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def _initialise_rnn(module: nn.LSTM | nn.GRU, generator: torch.Generator) -> None:
    bound, width = module.hidden_size**-0.5, module.hidden_size
    for weight in module.parameters():
        if weight.ndim == 2:
            weight.uniform_(-bound, bound, generator=generator)
        else:
            weight.zero_()
    if isinstance(module, nn.LSTM):  # gates are input, forget, cell, output (Jozefowicz et al. 2015 for the bias)
        module.all_weights[0][2][width : 2 * width] = 1.0
