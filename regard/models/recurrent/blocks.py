"""From the names in a config to the recurrent modules of regard.nn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batches import Rows
from regard.models.presets import ModelConfig
from regard.models.recurrent.config import Directions, RecurrentConfig
from regard.nn import (
    GRU,
    LSTM,
    AdditiveAttention,
    Attention,
    BilinearAttention,
    DotAttention,
    NoPositions,
    Recurrence,
    RecurrentEncoder,
    RecurrentLayer,
    Sight,
    TokenEmbedding,
)

CELLS: dict[str, type[Recurrence]] = {"lstm": LSTM, "gru": GRU}

SCORES: dict[str, Callable[[int], Attention]] = {
    "additive": lambda width: AdditiveAttention(width, width, width),
    "dot": lambda width: DotAttention(),
    "general": lambda width: BilinearAttention(width, width),
}


def embedding(config: ModelConfig, vocabulary: int, n_parts: int = 0) -> TokenEmbedding:
    """Token vectors as they enter the first layer, scaled as the Transformer's: tied ones would be too short."""
    return TokenEmbedding(vocabulary, config.d_model, NoPositions(), dropout=config.dropout, n_parts=n_parts)


def encoder(config: RecurrentConfig, directions: Directions) -> RecurrentEncoder:
    """Layers that read whole texts; dropout is between them."""
    new, width = CELLS[config.cell], config.d_model

    def layer(dropout: float) -> RecurrentLayer:
        if directions == "both":
            return RecurrentLayer(new(width, width // 2), new(width, width // 2), dropout)
        one = new(width, width)
        return RecurrentLayer(one, None, dropout) if directions == "forward" else RecurrentLayer(None, one, dropout)

    return RecurrentEncoder(layer(config.dropout if number else 0.0) for number in range(config.n_layers))


def text_lengths(rows: Rows) -> Int[Tensor, " B"]:
    """How long the text of each row is, counted on the device."""
    return (rows.segment > 0).sum(1)


def sight(source: Rows) -> Sight:
    """Every query sees all of the text in its row; none where there is none."""
    there = (source.segment > 0)[:, None, None]  # (B, 1, 1, S)
    blank = ~there.any(-1, keepdim=True)
    return Sight(torch.zeros_like(source.position[:, :1]), source.position, there | blank, blank)
