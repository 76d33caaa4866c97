"""Readers of texts with heads on them: a bi-LSTM (or GRU), and static vectors (SPEC 4.8, 4.10).

They have the methods of the Transformer's (models/encoder.py), the heads are the same.
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
    """Every token by itself: without layers, only the vector of each and the heads."""

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
    """Reads each text from both sides, or from one."""

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
        alone = unpack_row(rows, lengths) if lengths else rows
        x, sizes = self.embed(alone), text_lengths(alone)
        yield _repack_row(x, rows, lengths)
        for layer in self.encoder:
            x = layer(x, sizes)
            yield _repack_row(x, rows, lengths)


def unpack_row(rows: SegmentedRows, lengths: Sequence[int]) -> SegmentedRows:
    """The texts of one full row, each in a row to itself."""
    row, place = rows.segment[0].long() - 1, rows.position[0].long()
    shape = len(lengths), max(lengths)

    def laid(values: Tensor) -> Tensor:
        empty = values.new_zeros(shape)
        empty[row, place] = values[0]
        return empty

    segment = laid(torch.ones_like(rows.segment))
    return SegmentedRows(laid(rows.ids), segment, laid(rows.position), laid(rows.token_type_ids))


def _repack_row(hidden: Float[Tensor, "N K D"], rows: SegmentedRows, lengths: Sequence[int]) -> Float[Tensor, "B T D"]:
    """What was read of texts, where they stand in the row they came from."""
    return hidden[rows.segment[0].long() - 1, rows.position[0].long()][None] if lengths else hidden
