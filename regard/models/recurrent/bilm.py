"""The bidirectional language model as an encoder (ELMo, Peters et al. 2018).

Two language models read a text side by side, one forward and one backward, and know nothing of each other; the states
of each layer, and the embeddings, are concatenated:

    layer 2      [ h2 forward ; h2 backward ]
    layer 1      [ h1 forward ; h1 backward ]        a head reads their learned mix (task.layers = "mix")
    embeddings   [ x forward  ; x backward  ]

A recurrent encoder of both directions (encoder.py) is another model: there each layer reads both directions of the one
below. training/pretrained.py starts this one from two language models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.interfaces import EncoderModel
from regard.models.recurrent.blocks import CELLS, build_recurrent_embedding
from regard.models.recurrent.config import BiLMConfig
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.nn import RecurrentEncoderStack, SeparateDirectionsLayer, Tap


class BiLMEmbedding(nn.Module):
    """The embeddings of a forward and of a backward language model, concatenated."""

    scale = 1.0

    def __init__(self, config: BiLMConfig, vocabulary_size: int) -> None:
        super().__init__()
        half = replace(config, d_model=config.d_model // 2)
        self.forward_lm = build_recurrent_embedding(half, vocabulary_size, config.n_parts)
        self.backward_lm = build_recurrent_embedding(half, vocabulary_size, config.n_parts)
        self.out = Tap()

    def forward(
        self, ids: Int[Tensor, "B T"], position: Int[Tensor, "B T"], token_types: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        both = [each(ids, position, token_types) for each in (self.forward_lm, self.backward_lm)]
        embedded: Tensor = self.out(torch.cat(both, -1))
        return embedded

    def tokens(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return the embeddings of tokens without dropout."""
        return torch.cat([each.tokens(ids) * each.scale for each in (self.forward_lm, self.backward_lm)], -1)


class BiLMEncoder(RecurrentEncoder):
    """Two language models of opposite directions as one encoder with heads."""

    config: BiLMConfig  # type: ignore[assignment]

    def __init__(self, config: BiLMConfig, vocabulary_size: int, heads: Mapping[str, nn.Module]) -> None:
        EncoderModel.__init__(self)
        self.config = config
        self.embedding = BiLMEmbedding(config, vocabulary_size)  # type: ignore[assignment]
        new, half = CELLS[config.cell], config.d_model // 2
        dropouts = (config.dropout if number else 0.0 for number in range(config.n_layers))
        self.encoder = RecurrentEncoderStack(
            SeparateDirectionsLayer(new(half, half), new(half, half), dropout) for dropout in dropouts
        )
        self.heads = nn.ModuleDict(heads)
