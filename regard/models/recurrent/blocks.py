"""Recurrent modules of regard.nn built from the names in a config."""

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
    ProjectedAttention,
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
    "scaled": lambda width: ProjectedAttention(width, width, width, width),
}


def build_recurrent_embedding(config: ModelConfig, vocabulary_size: int, n_token_types: int = 0) -> TokenEmbedding:
    """Return the input embedding, scaled as the Transformer's because tied embeddings would be too small."""
    return TokenEmbedding(
        vocabulary_size, config.d_model, NoPositions(), dropout=config.dropout, n_token_types=n_token_types
    )


def build_recurrent_encoder(config: RecurrentConfig, directions: Directions) -> RecurrentEncoderStack:
    """Return the encoder layers, with dropout between them."""
    new, width = CELLS[config.cell], config.d_model

    def layer(dropout: float) -> RecurrentEncoderLayer:
        if directions == "both":
            return RecurrentEncoderLayer(new(width, width // 2), new(width, width // 2), dropout)
        if directions == "forward":
            return RecurrentEncoderLayer(new(width, width), None, dropout)
        return RecurrentEncoderLayer(None, new(width, width), dropout)

    return RecurrentEncoderStack(layer(config.dropout if number else 0.0) for number in range(config.n_layers))


def text_lengths(rows: Rows) -> Int[Tensor, " B"]:
    """Return the length of the text in each row, counted on the device."""
    return (rows.segment > 0).sum(1)


def make_source_mask(source: Rows) -> AttentionMask:
    """Return the cross-attention mask: every query may attend to all source tokens of its row."""
    mask = (source.segment > 0)[:, None, None]  # (B, 1, 1, S)
    fully_masked = ~mask.any(-1, keepdim=True)
    position = torch.zeros_like(source.position[:, :1])
    return AttentionMask(position, source.position, mask | fully_masked, fully_masked)
