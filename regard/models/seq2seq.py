"""The Transformer encoder-decoder (Vaswani et al. 2017).

Training calls `forward` on packed rows; generation calls `start` once and `step` for each token, with one sentence
per row. Both run the same layers; generation adds a KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import build_decoder_layer, build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerSeq2SeqConfig
from regard.models.interfaces import Seq2SeqModel
from regard.nn import (
    AttentionMask,
    DecoderStack,
    EncoderStack,
    KeyValue,
    KVCache,
    OutputEmbedding,
    OutputProjection,
    PackedPositions,
    make_mask,
)
from regard.nn.kernels.workspace import Workspace


@dataclass
class Seq2SeqDecoderState:
    """The decoder state of B sentences with W hypotheses (beams) each.

    The hypotheses of a sentence share one row of the KV cache, and no cached token is moved when some are dropped and
    others branch: `ancestor_mask` tells which cached tokens belong to the prefix of each hypothesis.

        cached            <sos> | Je  Il | vais  suis | ...          W tokens a step
        ancestor_mask 0     x   |  x     |  x         |              <sos> Je vais
                      1     x   |  x     |        x   |              <sos> Je suis
    """

    cross_kv: list[KeyValue]
    cross_attention_mask: AttentionMask
    caches: list[KVCache]
    ancestor_mask: Bool[Tensor, "B W K"]
    position: Int[Tensor, " K"]
    output_projection: OutputProjection
    length: int = 0
    has_branched: bool = False
    workspace: Workspace = field(default_factory=Workspace)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these hypotheses, numbered over all sentences; each row of `rows` is those of one sentence."""
        width = self.ancestor_mask.shape[1]
        sentences = rows[:, 0] // width
        self.has_branched |= rows.shape[1] > 1
        self.ancestor_mask = self.ancestor_mask[sentences[:, None], rows % width]
        if not torch.equal(sentences, torch.arange(len(self.cross_kv[0].key), device=rows.device)):
            self.cross_kv = [kv.select(sentences) for kv in self.cross_kv]
            self.cross_attention_mask = select_mask_rows(self.cross_attention_mask, sentences)
            for cache in self.caches:
                cache.select(sentences)

    def append_step(self) -> AttentionMask:
        """Return the mask of the next tokens: each attends to itself and to the prefix of its hypothesis."""
        b, w, _ = self.ancestor_mask.shape
        now = self.position.new_full((w,), self.length)
        itself = torch.eye(w, dtype=torch.bool, device=self.ancestor_mask.device).expand(b, -1, -1)
        self.ancestor_mask = torch.cat((self.ancestor_mask, itself), -1)
        self.position = torch.cat((self.position, now))
        self.length += 1
        mask = self.ancestor_mask[:, None] if self.has_branched else None
        return AttentionMask(now.expand(b, -1), self.position.expand(b, -1), mask)


def select_mask_rows(attention_mask: AttentionMask, rows: Tensor) -> AttentionMask:
    """Return the mask of these rows, in this order."""
    mask = None if attention_mask.mask is None else attention_mask.mask[rows]
    fully_masked = None if attention_mask.fully_masked is None else attention_mask.fully_masked[rows]
    return AttentionMask(attention_mask.query_position[rows], attention_mask.key_position[rows], mask, fully_masked)


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
        unpadded = bool((source.segment > 0).all())
        cross_mask = AttentionMask(first, source.position) if unpadded else make_mask(query, _packed_positions(source))
        ancestor_mask = torch.ones(len(first), 1, 0, dtype=torch.bool, device=first.device)
        output_projection = self.softmax_embedding.projection(self.output_bias)
        return Seq2SeqDecoderState(
            cross_kv,
            cross_mask,
            [KVCache() for _ in self.decoder],
            ancestor_mask,
            first.new_zeros(0),
            output_projection,
        )

    def step(self, tokens: Int[Tensor, " N"], state: Seq2SeqDecoderState) -> Float[Tensor, "N V"]:
        attention_mask = state.append_step()
        position = attention_mask.query_position
        x = self.target_embedding(tokens.view(position.shape), position)
        cross_attention_mask = state.cross_attention_mask._replace(query_position=position)
        with state.workspace.active():  # steps run one after another, so they can share it
            x = self.decoder(x, state.cross_kv, attention_mask, cross_attention_mask, state.caches)
            return state.output_projection(self.decoder_norm(x).flatten(0, 1))


def _packed_positions(rows: Rows) -> PackedPositions:
    return PackedPositions(rows.segment, rows.position)
