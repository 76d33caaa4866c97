"""The recurrent encoder-decoder, with one fixed vector (Sutskever et al. 2014) or attention (Bahdanau et al. 2015).

    encoder   bidirectional; its outputs are the keys and values, its final outputs the vector of the source
    bridge    one tanh layer from that vector to the initial states of the decoder
    decoder   its output is the query

It implements the interface of the Transformer's (models/seq2seq.py); rows hold one sentence each, in training too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import Rows
from regard.models.interfaces import Seq2SeqModel
from regard.models.recurrent.blocks import (
    ATTENTION_SCORES,
    CELLS,
    build_recurrent_embedding,
    build_recurrent_encoder,
    make_source_mask,
    text_lengths,
)
from regard.models.recurrent.config import RecurrentSeq2SeqConfig
from regard.models.source_rows import extend_key_values, extend_mask_rows, select_mask_rows
from regard.nn import (
    AttentionalDecoderLayer,
    AttentionMask,
    Dropout,
    InputFeedingDecoderStack,
    KeyValue,
    Linear,
    OutputEmbedding,
    OutputProjection,
    RecurrentCrossAttention,
    RecurrentDecoderLayer,
    RecurrentDecoderStack,
    RecurrentEncoderLayer,
)
from regard.nn.rnn import RNNState

DECODERS = {False: RecurrentDecoderStack, True: InputFeedingDecoderStack}
"""Decoder stacks by `input_feeding`."""


@dataclass
class RecurrentSeq2SeqState:
    """The decoder state of B sentences with W hypotheses each, which are consecutive rows of the states."""

    cross_kv: KeyValue | None
    cross_attention_mask: AttentionMask
    states: list[RNNState]
    output_projection: OutputProjection
    n_sentences: int

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these hypotheses, numbered over all sentences; each row of `rows` is those of one sentence."""
        width = len(self.states[0][0]) // self.n_sentences
        sentences, chosen = rows[:, 0] // width, rows.flatten()
        self.states = [tuple(part[chosen] for part in state) for state in self.states]
        if not torch.equal(sentences, torch.arange(self.n_sentences, device=rows.device)):
            self.cross_kv = None if self.cross_kv is None else self.cross_kv.select(sentences)
            self.cross_attention_mask = select_mask_rows(self.cross_attention_mask, sentences)
        self.n_sentences = len(rows)

    def extend(self, other: RecurrentSeq2SeqState) -> None:
        """Let the sentences of another state join, which has as many hypotheses of each."""
        self.cross_attention_mask = extend_mask_rows(self.cross_attention_mask, other.cross_attention_mask)
        if self.cross_kv is not None and other.cross_kv is not None:
            n_keys = self.cross_attention_mask.key_position.shape[1]
            self.cross_kv = extend_key_values(self.cross_kv, other.cross_kv, n_keys)
        pairs = zip(self.states, other.states, strict=True)
        self.states = [tuple(torch.cat(parts) for parts in zip(*pair, strict=True)) for pair in pairs]
        self.n_sentences += other.n_sentences


class RecurrentSeq2Seq(Seq2SeqModel):
    """A recurrent encoder of the source and a recurrent decoder of the target, with or without cross-attention."""

    config: RecurrentSeq2SeqConfig

    def __init__(
        self, config: RecurrentSeq2SeqConfig, source_vocabulary_size: int, target_vocabulary_size: int, *, joint: bool
    ) -> None:
        super().__init__()
        assert source_vocabulary_size == target_vocabulary_size or not joint, (
            f"one vocabulary, two sizes: source {source_vocabulary_size}, target {target_vocabulary_size}"
        )
        self.config = config
        self.source_embedding = build_recurrent_embedding(config, source_vocabulary_size)
        self.target_embedding = build_recurrent_embedding(config, target_vocabulary_size)
        self.encoder = build_recurrent_encoder(config, config.directions)
        self.decoder = DECODERS[config.input_feeding](
            _build_decoder_layer(config, i) for i in range(config.n_decoder_layers)
        )
        self.n_states = CELLS[config.cell].n_states
        self.bridge = Linear(config.d_model, config.n_decoder_layers * self.n_states * config.d_model)
        self.dropout = Dropout(config.dropout)
        self.softmax_embedding = OutputEmbedding(target_vocabulary_size, config.d_model)
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
        states, cross_kv = self._init_states(encoded, source), self._project_kv(encoded)
        hidden: Tensor = self.dropout(self.decoder(x, states, cross_kv, make_source_mask(source))[0])
        return hidden

    def start(self, source: Rows) -> RecurrentSeq2SeqState:
        encoded = self.encode(source)
        return RecurrentSeq2SeqState(
            self._project_kv(encoded),
            make_source_mask(source),
            self._init_states(encoded, source),
            self.softmax_embedding.projection(),
            len(source.ids),
        )

    def step(self, tokens: Int[Tensor, " N"], state: RecurrentSeq2SeqState) -> Float[Tensor, "N V"]:
        x = self.target_embedding(tokens[:, None], torch.zeros_like(tokens)[:, None])
        outputs, state.states = self.decoder(x, state.states, state.cross_kv, state.cross_attention_mask)
        return state.output_projection(self.dropout(outputs)[:, 0])

    def _init_states(self, encoded: Float[Tensor, "B S D"], source: Rows) -> list[RNNState]:
        """Return the initial states of the decoder, from the final outputs of the encoder (Bahdanau et al. 2015)."""
        top = self.encoder[-1]
        assert isinstance(top, RecurrentEncoderLayer)
        bridged = self.bridge(top.final_outputs(encoded, text_lengths(source))).tanh()
        parts = bridged.chunk(len(self.decoder) * self.n_states, -1)
        layers = range(0, len(parts), self.n_states)
        return self.decoder.init_states([tuple(parts[first : first + self.n_states]) for first in layers])

    def _project_kv(self, encoded: Float[Tensor, "B S D"]) -> KeyValue | None:
        top = self.decoder[-1]
        return top.cross_attention.project_kv(encoded) if isinstance(top, AttentionalDecoderLayer) else None


def _build_decoder_layer(config: RecurrentSeq2SeqConfig, number: int) -> RecurrentDecoderLayer:
    """Return one decoder layer; with attention, the last one attends to the source."""
    width, dropout = config.d_model, config.dropout if number else 0.0
    fed = config.input_feeding and number == 0
    rnn = CELLS[config.cell](2 * width if fed else width, width)
    if config.attention == "none" or number + 1 < config.n_decoder_layers:
        return RecurrentDecoderLayer(rnn, dropout)
    return AttentionalDecoderLayer(
        rnn, RecurrentCrossAttention(ATTENTION_SCORES[config.attention](width), width, width), dropout
    )
