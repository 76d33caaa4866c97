"""The recurrent encoder-decoder: one fixed vector (Sutskever et al. 2014), or attention (SPEC 4.2, 4.3).

    source   a bi-LSTM: keys and values are what leaves it, and its last states are the vector of the whole source
    target   an LSTM that begins with that vector, through one layer; its state is the query

It has the methods of the Transformer's (models/seq2seq.py); rows hold one sentence each, in training too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.interfaces import PairModel
from regard.models.recurrent.blocks import CELLS, SCORES, embedding, encoder, sight, text_lengths
from regard.models.recurrent.config import RecurrentPairConfig
from regard.models.seq2seq import rows_of
from regard.nn import (
    AttentiveLayer,
    Dropout,
    FedDecoder,
    KeyValue,
    Linear,
    PrepackedLinear,
    RecurrentDecoder,
    RecurrentDecoderLayer,
    RecurrentLayer,
    Sight,
    StateAttention,
)
from regard.nn.recurrence import State

DECODERS = {False: RecurrentDecoder, True: FedDecoder}
"""By whether what it made of one token enters with the next."""


@dataclass
class Written:
    """What is remembered of B sentences and of W continuations of each, which lie side by side in the states."""

    memory: KeyValue | None
    sight: Sight
    states: list[State]
    vocabulary: PrepackedLinear
    n_sentences: int

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these continuations, all those of a row of one sentence, counted through all sentences."""
        width = len(self.states[0][0]) // self.n_sentences
        sentences, chosen = rows[:, 0] // width, rows.flatten()
        self.states = [tuple(part[chosen] for part in state) for state in self.states]
        if not torch.equal(sentences, torch.arange(self.n_sentences, device=rows.device)):
            self.memory = None if self.memory is None else self.memory.select(sentences)
            self.sight = rows_of(self.sight, sentences)
        self.n_sentences = len(rows)


class RecurrentSeq2Seq(PairModel):
    """An encoder reads the source; a decoder writes the target from the vector it made, or looking back at it."""

    config: RecurrentPairConfig

    def __init__(
        self, config: RecurrentPairConfig, source_vocabulary: int, target_vocabulary: int, *, joint: bool
    ) -> None:
        super().__init__()
        same = source_vocabulary == target_vocabulary
        assert same or not joint, f"one vocabulary, two sizes: source {source_vocabulary}, target {target_vocabulary}"
        self.config = config
        self.source_embedding = embedding(config, source_vocabulary)
        self.target_embedding = embedding(config, target_vocabulary)
        self.encoder = encoder(config, config.directions)
        self.decoder = DECODERS[config.input_feeding](_layer(config, i) for i in range(config.n_decoder_layers))
        self.n_states = CELLS[config.cell].n_states
        self.bridge = Linear(config.d_model, config.n_decoder_layers * self.n_states * config.d_model)
        self.dropout = Dropout(config.dropout)
        self.softmax_embedding = nn.Embedding(target_vocabulary, config.d_model)
        self.output_bias = None
        if config.tied:
            self.softmax_embedding.weight = self.target_embedding.tokens.weight
            if joint:
                self.source_embedding.tokens.weight = self.target_embedding.tokens.weight

    def encode(self, source: Rows) -> Float[Tensor, "B S D"]:
        encoded: Tensor = self.encoder(self.source_embedding(source.ids, source.position), text_lengths(source))
        return encoded

    def decode(self, encoded: Float[Tensor, "B S D"], source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        x = self.target_embedding(target_in.ids, target_in.position)
        written = self.decoder(x, self._begin(encoded, source), self._remember(encoded), sight(source))[0]
        dropped: Tensor = self.dropout(written)
        return dropped

    def start(self, source: Rows) -> Written:
        encoded = self.encode(source)
        vocabulary = PrepackedLinear(self.softmax_embedding.weight)
        states = self._begin(encoded, source)
        return Written(self._remember(encoded), sight(source), states, vocabulary, len(source.ids))

    def step(self, tokens: Int[Tensor, " N"], state: Written) -> Float[Tensor, "N V"]:
        x = self.target_embedding(tokens[:, None], torch.zeros_like(tokens)[:, None])
        written, state.states = self.decoder(x, state.states, state.memory, state.sight)
        return state.vocabulary(self.dropout(written)[:, 0])

    def _begin(self, encoded: Float[Tensor, "B S D"], source: Rows) -> list[State]:
        """The states of all layers of the decoder, made of the last states of the encoder (Bahdanau et al. 2015)."""
        top = self.encoder[-1]
        assert isinstance(top, RecurrentLayer)
        parts = self.bridge(top.last(encoded, text_lengths(source))).tanh().chunk(len(self.decoder) * self.n_states, -1)
        layers = range(0, len(parts), self.n_states)
        return self.decoder.begin([tuple(parts[first : first + self.n_states]) for first in layers])

    def _remember(self, encoded: Float[Tensor, "B S D"]) -> KeyValue | None:
        top = self.decoder[-1]
        return top.cross_attention.remember(encoded) if isinstance(top, AttentiveLayer) else None


def _layer(config: RecurrentPairConfig, number: int) -> RecurrentDecoderLayer:
    """A layer of the decoder; the last one looks at the source, where anything does."""
    width, dropout = config.d_model, config.dropout if number else 0.0
    fed = config.input_feeding and number == 0
    recurrence = CELLS[config.cell](2 * width if fed else width, width)
    if config.attention == "none" or number + 1 < config.n_decoder_layers:
        return RecurrentDecoderLayer(recurrence, dropout)
    return AttentiveLayer(recurrence, StateAttention(SCORES[config.attention](width), width, width), dropout)
