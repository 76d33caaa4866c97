"""From the names in a config to the modules of regard.nn: positions, norms, activations, layers, initial weights.

Models compose their stacks from these; nothing below models/ knows a config.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.presets import ModelConfig
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
)

ABSOLUTE: dict[str, Callable[[ModelConfig], Positions]] = {
    "sinusoidal": lambda config: SinusoidalPositions(config.d_model),
    "learned": lambda config: LearnedPositions(config.n_positions, config.d_model),
}
"""Schemes that act on the embedding."""

IN_ATTENTION: dict[str, Callable[[int], Positions]] = {
    "relative": RelativePositions,
    "relative-values": lambda width: RelativePositions(width, d_value=width),
    "rotary": RotaryPositions,
}
"""Schemes that act in each self-attention; they take the width per head."""

FEED_FORWARD: dict[str, Callable[[int, int], nn.Module]] = {
    "relu": partial(FeedForward, activation=F.relu),
    "gelu": partial(FeedForward, activation=F.gelu),
    "gelu-tanh": partial(FeedForward, activation=partial(F.gelu, approximate="tanh")),
    "gated-gelu": partial(GatedFeedForward, activation=F.gelu),
    "gated-silu": partial(GatedFeedForward, activation=F.silu),
}

AROUND: dict[str, type[PostNorm] | type[PreNorm]] = {"post": PostNorm, "pre": PreNorm}


def embedding_positions(config: ModelConfig) -> Positions:
    """The scheme of the embedding; none where positions act inside attention."""
    return ABSOLUTE[config.positions](config) if config.positions in ABSOLUTE else NoPositions()


def self_attention(config: ModelConfig) -> MultiHeadAttention:
    """A self-attention with its own position scheme, where it has one."""
    width = config.d_model // config.n_heads
    scheme = IN_ATTENTION[config.positions](width) if config.positions in IN_ATTENTION else NoPositions()
    return MultiHeadAttention(config.d_model, config.n_heads, positions=scheme)


def encoder_layer(config: ModelConfig) -> EncoderLayer:
    """One layer of an encoder."""
    return EncoderLayer(
        self_attention(config),
        FEED_FORWARD[config.activation](config.d_model, config.d_ff),
        partial(AROUND[config.norm], config.d_model, config.dropout),
    )


def decoder_layer(config: ModelConfig) -> DecoderLayer:
    """One layer of a decoder that looks back at an encoder."""
    return DecoderLayer(
        self_attention(config),
        MultiHeadAttention(config.d_model, config.n_heads),
        FEED_FORWARD[config.activation](config.d_model, config.d_ff),
        partial(AROUND[config.norm], config.d_model, config.dropout),
    )


def final_norm(config: ModelConfig) -> nn.Module:
    """What ends a stack: a norm after pre-norm layers, nothing after post-norm ones."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw every weight of a model; the only place where weights are drawn.

    embeddings              normal, standard deviation width^-0.5
    matrices                uniform in +- sqrt(6 / (fan_in + fan_out)) (Glorot); W_Q, W_K, W_V each by itself
    pooling queries         normal, standard deviation 1
    biases                  0
    norms                   gain 1, shift 0
    """
    stacked = {module.projection for module in model.modules() if isinstance(module, MultiHeadAttention)}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, module.embedding_dim**-0.5, generator=generator)
        elif isinstance(module, MultiHeadAttention):
            for part in module.projection.weight.split(module.widths):
                _glorot(part, generator)
        elif isinstance(module, nn.Linear) and module not in stacked:
            _glorot(module.weight, generator)
        elif isinstance(module, AttentionPooling) and module.query.requires_grad:
            module.query.normal_(generator=generator)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def _glorot(weight: Tensor, generator: torch.Generator) -> None:
    bound = math.sqrt(6 / sum(weight.shape))
    weight.uniform_(-bound, bound, generator=generator)
