"""Recurrent encoders with heads: bidirectional LSTM or GRU, and static embeddings without layers.

They implement the interface of the Transformer encoder (models/encoder.py) and take the same heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import SegmentedRows
from regard.models.interfaces import EncoderModel
from regard.models.recurrent.blocks import build_recurrent_embedding, build_recurrent_encoder, text_lengths
from regard.models.recurrent.config import RecurrentEncoderConfig, StaticEncoderConfig


class StaticEncoder(EncoderModel):
    """Token embeddings without layers or context, and heads."""

    config: StaticEncoderConfig

    def __init__(self, config: StaticEncoderConfig, vocabulary_size: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_recurrent_embedding(config, vocabulary_size, config.n_parts)
        self.encoder = nn.ModuleList()
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        return self.embed(rows)

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        yield self.embed(rows)


class RecurrentEncoder(EncoderModel):
    """A recurrent encoder, bidirectional or of one direction."""

    config: RecurrentEncoderConfig

    def __init__(self, config: RecurrentEncoderConfig, vocabulary_size: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_recurrent_embedding(config, vocabulary_size, config.n_parts)
        self.encoder = build_recurrent_encoder(config, config.directions)
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        *_, last = self.iter_hidden_states(rows, lengths)
        return last

    def iter_hidden_states(self, rows: SegmentedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        unpacked = unpack_row(rows, lengths) if lengths else rows
        x, n_tokens = self.embed(unpacked), text_lengths(unpacked)
        yield _repack_row(x, rows, lengths)
        for layer in self.encoder:
            x = layer(x, n_tokens)
            yield _repack_row(x, rows, lengths)


def unpack_row(rows: SegmentedRows, lengths: Sequence[int]) -> SegmentedRows:
    """Return the texts of one full row, each in a row of its own."""
    row, column = rows.segment[0].long() - 1, rows.position[0].long()
    shape = len(lengths), max(lengths)

    def scatter(values: Tensor) -> Tensor:
        unpacked = values.new_zeros(shape)
        unpacked[row, column] = values[0]
        return unpacked

    segment = scatter(torch.ones_like(rows.segment))
    return SegmentedRows(scatter(rows.ids), segment, scatter(rows.position), scatter(rows.token_type_ids))


def _repack_row(hidden: Float[Tensor, "N K D"], rows: SegmentedRows, lengths: Sequence[int]) -> Float[Tensor, "B T D"]:
    """Return the hidden states of unpacked texts in the packed row they came from."""
    return hidden[rows.segment[0].long() - 1, rows.position[0].long()][None] if lengths else hidden
