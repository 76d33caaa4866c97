"""From the names in a config to the recurrent modules of regard.nn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batches import Rows
from regard.models.config import ModelConfig
from regard.models.recurrent.config import Directions, RecurrentConfig
from regard.nn import (
    GRU,
    LSTM,
    AdditiveAttention,
    Attention,
    AttentionMask,
    BilinearAttention,
    DotAttention,
    NoPositions,
    RecurrentEncoderLayer,
    RecurrentEncoderStack,
    RNNBase,
    TokenEmbedding,
)

CELLS: dict[str, type[RNNBase]] = {"lstm": LSTM, "gru": GRU}

ATTENTION_SCORES: dict[str, Callable[[int], Attention]] = {
    "additive": lambda width: AdditiveAttention(width, width, width),
    "dot": lambda width: DotAttention(),
    "general": lambda width: BilinearAttention(width, width),
}


def build_recurrent_embedding(config: ModelConfig, vocabulary_size: int, n_token_types: int = 0) -> TokenEmbedding:
    """Token vectors as they enter the first layer, scaled as the Transformer's: tied ones would be too short."""
    return TokenEmbedding(
        vocabulary_size, config.d_model, NoPositions(), dropout=config.dropout, n_token_types=n_token_types
    )


def build_recurrent_encoder(config: RecurrentConfig, directions: Directions) -> RecurrentEncoderStack:
    """Layers that read whole texts; dropout is between them."""
    new, width = CELLS[config.cell], config.d_model

    def layer(dropout: float) -> RecurrentEncoderLayer:
        if directions == "both":
            return RecurrentEncoderLayer(new(width, width // 2), new(width, width // 2), dropout)
        one = new(width, width)
        return (
            RecurrentEncoderLayer(one, None, dropout)
            if directions == "forward"
            else RecurrentEncoderLayer(None, one, dropout)
        )

    return RecurrentEncoderStack(layer(config.dropout if number else 0.0) for number in range(config.n_layers))


def text_lengths(rows: Rows) -> Int[Tensor, " B"]:
    """How long the text of each row is, counted on the device."""
    return (rows.segment > 0).sum(1)


def make_source_mask(source: Rows) -> AttentionMask:
    """Every query sees all of the text in its row; none where there is none."""
    there = (source.segment > 0)[:, None, None]  # (B, 1, 1, S)
    blank = ~there.any(-1, keepdim=True)
    return AttentionMask(torch.zeros_like(source.position[:, :1]), source.position, there | blank, blank)
