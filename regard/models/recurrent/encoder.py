"""Readers of texts with heads on them: a bi-LSTM (or GRU), and static vectors (SPEC 4.8, 4.10).

They have the methods of the Transformer's (models/encoder.py), the heads are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import PartedRows
from regard.models.interfaces import TextModel
from regard.models.recurrent.blocks import embedding, encoder, text_lengths
from regard.models.recurrent.config import RecurrentTextConfig, StaticConfig


class StaticEncoder(TextModel):
    """Every token by itself: without layers, only the vector of each and the heads."""

    config: StaticConfig

    def __init__(self, config: StaticConfig, vocabulary: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(config, vocabulary, config.n_parts)
        self.encoder = nn.ModuleList()
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: PartedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        return self.entering(rows)

    def states(self, rows: PartedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        yield self.entering(rows)


class RecurrentTextEncoder(TextModel):
    """Reads each text from both sides, or from one."""

    config: RecurrentTextConfig

    def __init__(self, config: RecurrentTextConfig, vocabulary: int, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(config, vocabulary, config.n_parts)
        self.encoder = encoder(config, config.directions)
        self.heads = nn.ModuleDict(heads)

    def forward(self, rows: PartedRows, lengths: Sequence[int] = ()) -> Float[Tensor, "B T D"]:
        *_, last = self.states(rows, lengths)
        return last

    def states(self, rows: PartedRows, lengths: Sequence[int] = ()) -> Iterator[Float[Tensor, "B T D"]]:
        alone = apart(rows, lengths) if lengths else rows
        x, sizes = self.entering(alone), text_lengths(alone)
        yield _back(x, rows, lengths)
        for layer in self.encoder:
            x = layer(x, sizes)
            yield _back(x, rows, lengths)


def apart(rows: PartedRows, lengths: Sequence[int]) -> PartedRows:
    """The texts of one full row, each in a row to itself."""
    row, place = rows.segment[0].long() - 1, rows.position[0].long()
    shape = len(lengths), max(lengths)

    def laid(values: Tensor) -> Tensor:
        empty = values.new_zeros(shape)
        empty[row, place] = values[0]
        return empty

    segment = laid(torch.ones_like(rows.segment))
    return PartedRows(laid(rows.ids), segment, laid(rows.position), laid(rows.part))


def _back(read: Float[Tensor, "N K D"], rows: PartedRows, lengths: Sequence[int]) -> Float[Tensor, "B T D"]:
    """What was read of texts, where they stand in the row they came from."""
    return read[rows.segment[0].long() - 1, rows.position[0].long()][None] if lengths else read
