"""The recurrent language model (Mikolov et al. 2010; LSTM: Zaremba et al. 2014).

It implements the interface of the Transformer's (models/language_model.py). The size of its state does not depend on
the length of the text, so prompts and continuations may have any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import Rows
from regard.models.interfaces import CausalLM
from regard.models.recurrent.blocks import CELLS, build_recurrent_embedding
from regard.models.recurrent.config import RecurrentLMConfig
from regard.nn import Dropout, OutputEmbedding, OutputProjection, RecurrentDecoderLayer, RecurrentDecoderStack
from regard.nn.rnn import RNNState


@dataclass
class RecurrentLMState:
    """The states of all layers for texts being generated, one per row."""

    states: list[RNNState]
    output_projection: OutputProjection

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these rows in this order; a row may be repeated or dropped."""
        self.states = [tuple(part[rows.flatten()] for part in state) for state in self.states]


class RecurrentLM(CausalLM):
    """A stack of LSTM or GRU layers; returns the logits of the next token at each position."""

    config: RecurrentLMConfig

    def __init__(self, config: RecurrentLMConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_recurrent_embedding(config, vocabulary_size)
        new, width = CELLS[config.cell], config.d_model
        dropouts = (config.dropout if number else 0.0 for number in range(config.n_layers))
        self.decoder = RecurrentDecoderStack(RecurrentDecoderLayer(new(width, width), dropout) for dropout in dropouts)
        self.n_states = new.n_states
        self.dropout = Dropout(config.dropout)
        self.softmax_embedding = OutputEmbedding(vocabulary_size, width)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    def hidden_states(self, rows: Rows) -> Float[Tensor, "B T D"]:
        outputs = self.decoder(self.embedding(rows.ids, rows.position), self._zero_states(len(rows.ids)))[0]
        hidden: Tensor = self.dropout(outputs)
        return hidden

    def start(self, rows: Rows) -> RecurrentLMState:
        """Encode the prompts in batches of equal length, and return the decoder state."""
        lengths = (rows.segment > 0).sum(1)
        states = self._zero_states(len(lengths))
        for length in sorted(set(lengths.tolist()) - {0}):
            (chosen,) = (lengths == length).nonzero(as_tuple=True)
            x = self.embedding(rows.ids[chosen, :length], rows.position[chosen, :length])
            new_states = self.decoder(x, self._zero_states(len(chosen)))[1]
            for state, new_state in zip(states, new_states, strict=True):
                for tensor, values in zip(state, new_state, strict=True):
                    tensor[chosen] = values
        return RecurrentLMState(states, self.softmax_embedding.projection())

    def step(self, tokens: Int[Tensor, " N"], state: RecurrentLMState) -> Float[Tensor, "N V"]:
        x = self.embedding(tokens[:, None], torch.zeros_like(tokens)[:, None])
        outputs, state.states = self.decoder(x, state.states)
        return state.output_projection(self.dropout(outputs)[:, 0])

    def _zero_states(self, n_rows: int) -> list[RNNState]:
        """Return the states of all layers before the first token."""
        like = self.embedding.tokens.weight
        return [tuple(like.new_zeros(n_rows, self.config.d_model) for _ in range(self.n_states)) for _ in self.decoder]
