"""The recurrent language model (Mikolov et al. 2010; LSTM: Zaremba et al. 2014), SPEC 4.5.

It has the methods of the Transformer's (models/language_model.py). What it remembers of a text has one size however
long the text is, so nothing slides: a prompt and what is written behind it may have any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.interfaces import NextModel
from regard.models.recurrent.blocks import CELLS, embedding
from regard.models.recurrent.config import RecurrentNextConfig
from regard.nn import Dropout, PrepackedLinear, RecurrentDecoder, RecurrentDecoderLayer
from regard.nn.recurrence import State


@dataclass
class Read:
    """What the model remembers of the texts it goes on with, one in each row."""

    states: list[State]
    vocabulary: PrepackedLinear

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these rows, in this order; a row may be taken several times or not at all."""
        self.states = [tuple(part[rows.flatten()] for part in state) for state in self.states]


class RecurrentLanguageModel(NextModel):
    """Reads a text from the left; gives scores of every next token."""

    config: RecurrentNextConfig

    def __init__(self, config: RecurrentNextConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(config, vocabulary)
        new, width = CELLS[config.cell], config.d_model
        dropouts = (config.dropout if number else 0.0 for number in range(config.n_layers))
        self.decoder = RecurrentDecoder(RecurrentDecoderLayer(new(width, width), dropout) for dropout in dropouts)
        self.n_states = new.n_states
        self.dropout = Dropout(config.dropout)
        self.softmax_embedding = nn.Embedding(vocabulary, width)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    def hidden(self, rows: Rows) -> Float[Tensor, "B T D"]:
        read = self.decoder(self.embedding(rows.ids, rows.position), self._nothing(len(rows.ids)))[0]
        dropped: Tensor = self.dropout(read)
        return dropped

    def start(self, rows: Rows) -> Read:
        """Texts of one length are read together."""
        lengths = (rows.segment > 0).sum(1)
        states = self._nothing(len(lengths))
        for length in sorted(set(lengths.tolist()) - {0}):
            (chosen,) = (lengths == length).nonzero(as_tuple=True)
            x = self.embedding(rows.ids[chosen, :length], rows.position[chosen, :length])
            found = self.decoder(x, self._nothing(len(chosen)))[1]
            for state, part in zip(states, found, strict=True):
                for whole, own in zip(state, part, strict=True):
                    whole[chosen] = own
        return Read(states, PrepackedLinear(self.softmax_embedding.weight))

    def step(self, tokens: Int[Tensor, " N"], state: Read) -> Float[Tensor, "N V"]:
        x = self.embedding(tokens[:, None], torch.zeros_like(tokens)[:, None])
        read, state.states = self.decoder(x, state.states)
        return state.vocabulary(self.dropout(read)[:, 0])

    def _nothing(self, n_rows: int) -> list[State]:
        """The states of all layers before the first token."""
        like = self.embedding.tokens.weight
        return [tuple(like.new_zeros(n_rows, self.config.d_model) for _ in range(self.n_states)) for _ in self.decoder]
