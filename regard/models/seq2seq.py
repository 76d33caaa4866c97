"""The Transformer encoder-decoder (Vaswani et al. 2017).

Training calls `forward` on packed rows; generation calls `start` once and `step` for each token, with one sentence
per row. Both run the same layers; generation adds a KV cache.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import build_decoder_layer, build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerSeq2SeqConfig
from regard.models.interfaces import Seq2SeqModel
from regard.models.seq2seq_state import Seq2SeqDecoderState, StaticSeq2SeqState
from regard.nn import (
    AttentionMask,
    DecoderStack,
    EncoderStack,
    KVCache,
    OutputEmbedding,
    PackedPositions,
    make_mask,
    taps,
)
from regard.nn.tap import any_active


class TransformerSeq2Seq(Seq2SeqModel):
    """An encoder of the source and a decoder of the target with cross-attention."""

    config: TransformerSeq2SeqConfig

    def __init__(
        self, config: TransformerSeq2SeqConfig, source_vocabulary_size: int, target_vocabulary_size: int, *, joint: bool
    ) -> None:
        super().__init__()
        assert source_vocabulary_size == target_vocabulary_size or not joint, (
            f"one vocabulary, two sizes: source {source_vocabulary_size}, target {target_vocabulary_size}"
        )
        self.config, self.joint = config, joint
        self.source_embedding = build_embedding(config, source_vocabulary_size)
        self.target_embedding = build_embedding(config, target_vocabulary_size)
        self.encoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))
        self.encoder_norm = build_final_norm(config)
        self.decoder = DecoderStack(build_decoder_layer(config) for _ in range(config.n_decoder_layers))
        self.decoder_norm = build_final_norm(config)
        self.softmax_embedding = OutputEmbedding(target_vocabulary_size, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(target_vocabulary_size)) if config.output_bias else None
        if config.tied:
            self.softmax_embedding.weight = self.target_embedding.tokens.weight
            if joint:
                self.source_embedding.tokens.weight = self.target_embedding.tokens.weight

    def encode(self, source: Rows) -> Float[Tensor, "B S D"]:
        x = self.source_embedding(source.ids, source.position)
        encoded: Tensor = self.encoder_norm(self.encoder(x, make_mask(_packed_positions(source))))
        return encoded

    def decode(self, encoded: Float[Tensor, "B S D"], source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        x = self.target_embedding(target_in.ids, target_in.position)
        attention_mask = make_mask(_packed_positions(target_in), causal=True)
        cross_attention_mask = make_mask(_packed_positions(target_in), _packed_positions(source))
        cross_kv = self.decoder.project_kv(encoded, source.position)
        decoded: Tensor = self.decoder_norm(self.decoder(x, cross_kv, attention_mask, cross_attention_mask))
        return decoded

    def start(self, source: Rows) -> Seq2SeqDecoderState:
        cross_kv = self.decoder.project_kv(self.encode(source), source.position)
        first = source.position[:, :1]
        query = PackedPositions(torch.ones_like(first), first)
        unpadded = not source.ids.is_cuda and bool((source.segment > 0).all())  # a GPU would be waited for
        cross_mask = AttentionMask(first, source.position) if unpadded else make_mask(query, _packed_positions(source))
        ancestor_mask = torch.ones(len(first), 1, 0, dtype=torch.bool, device=first.device)
        output_projection = self.softmax_embedding.projection(self.output_bias)
        return Seq2SeqDecoderState(
            [KVCache.from_kv(kv) for kv in cross_kv],
            cross_mask,
            [KVCache() for _ in self.decoder],
            ancestor_mask,
            first.new_zeros(len(first), 0),
            first.new_zeros(len(first)),
            first.new_zeros(len(first)),
            output_projection,
        )

    def step(self, tokens: Int[Tensor, " N"], state: Seq2SeqDecoderState | StaticSeq2SeqState) -> Float[Tensor, "N V"]:
        attention_mask = state.append_step()
        position = attention_mask.query_position
        x = self.target_embedding(tokens.view(position.shape), position)
        cross_attention_mask = state.cross_attention_mask._replace(query_position=position)
        with state.workspace.active():  # steps run one after another, so they can share it
            x = self.decoder(x, state.cross_kv, attention_mask, cross_attention_mask, state.caches)
            return state.output_projection(self.decoder_norm(x).flatten(0, 1))

    @property
    def has_static_state(self) -> bool:
        """Unless a tap is active, which a replayed CUDA graph would not trigger."""
        return not any_active(*taps(self).values())

    def make_static_state(
        self, state: Seq2SeqDecoderState, *, n_slots: int, width: int, n_source: int, max_length: int
    ) -> StaticSeq2SeqState:
        return StaticSeq2SeqState(state, n_slots, width, n_source, max_length)


def _packed_positions(rows: Rows) -> PackedPositions:
    return PackedPositions(rows.segment, rows.position)
