"""The Transformer encoder-decoder (Vaswani et al. 2017), SPEC 4.1.

Training calls `forward` on packed rows; generation calls `start` once and `step` for each token, with one sentence
per row. Both run the same layers; only the cache differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import decoder_layer, embedding, encoder_layer, final_norm
from regard.models.interfaces import PairModel
from regard.models.presets import Seq2SeqConfig
from regard.nn import Cache, Decoder, Encoder, KeyValue, Place, PrepackedLinear, Sight, visible
from regard.nn.kernels.workspace import Workspace


@dataclass
class DecoderState:
    """What the decoder remembers of B sentences while it writes W continuations of each.

    The continuations of a sentence lie side by side in one row, and nothing remembered is ever moved when some are
    dropped and others branch: `own` says which of the remembered tokens lie on the way to each continuation.

        remembered   <sos> | Je  Il | vais  suis | ...          W tokens a step
        own    0       x   |  x     |  x         |              <sos> Je vais
               1       x   |  x     |        x   |              <sos> Je suis
    """

    memories: list[KeyValue]
    memory_sight: Sight
    caches: list[Cache]
    own: Bool[Tensor, "B W K"]
    position: Int[Tensor, " K"]
    vocabulary: PrepackedLinear
    length: int = 0
    branched: bool = False
    workspace: Workspace = field(default_factory=Workspace)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these continuations, all those of a row of one sentence, counted through all sentences."""
        width = self.own.shape[1]
        sentences = rows[:, 0] // width
        self.branched |= rows.shape[1] > 1
        self.own = self.own[sentences[:, None], rows % width]
        if not torch.equal(sentences, torch.arange(len(self.memories[0].key), device=rows.device)):
            self.memories = [memory.select(sentences) for memory in self.memories]
            self.memory_sight = rows_of(self.memory_sight, sentences)
            for cache in self.caches:
                cache.select(sentences)

    def write(self) -> Sight:
        """What the tokens now written may look at: themselves and what lies on their way."""
        b, w, _ = self.own.shape
        now = self.position.new_full((w,), self.length)
        itself = torch.eye(w, dtype=torch.bool, device=self.own.device).expand(b, -1, -1)
        self.own = torch.cat((self.own, itself), -1)
        self.position = torch.cat((self.position, now))
        self.length += 1
        allowed = self.own[:, None] if self.branched else None
        return Sight(now.expand(b, -1), self.position.expand(b, -1), allowed)


def rows_of(sight: Sight, rows: Tensor) -> Sight:
    """The sight of these rows, in this order."""
    allowed = None if sight.allowed is None else sight.allowed[rows]
    blank = None if sight.blank is None else sight.blank[rows]
    return Sight(sight.query_position[rows], sight.key_position[rows], allowed, blank)


class Seq2Seq(PairModel):
    """An encoder reads the source; a decoder writes the target, looking back at it."""

    config: Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, source_vocabulary: int, target_vocabulary: int, *, joint: bool) -> None:
        super().__init__()
        same = source_vocabulary == target_vocabulary
        assert same or not joint, f"one vocabulary, two sizes: source {source_vocabulary}, target {target_vocabulary}"
        self.config, self.joint = config, joint
        self.source_embedding = embedding(config, source_vocabulary)
        self.target_embedding = embedding(config, target_vocabulary)
        self.encoder = Encoder(encoder_layer(config) for _ in range(config.n_layers))
        self.encoder_norm = final_norm(config)
        self.decoder = Decoder(decoder_layer(config) for _ in range(config.n_decoder_layers))
        self.decoder_norm = final_norm(config)
        self.softmax_embedding = nn.Embedding(target_vocabulary, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(target_vocabulary)) if config.output_bias else None
        if config.tied:
            self.softmax_embedding.weight = self.target_embedding.tokens.weight
            if joint:
                self.source_embedding.tokens.weight = self.target_embedding.tokens.weight

    def encode(self, source: Rows) -> Float[Tensor, "B S D"]:
        x = self.source_embedding(source.ids, source.position)
        encoded: Tensor = self.encoder_norm(self.encoder(x, visible(_place(source))))
        return encoded

    def decode(self, encoded: Float[Tensor, "B S D"], source: Rows, target_in: Rows) -> Float[Tensor, "B T D"]:
        x = self.target_embedding(target_in.ids, target_in.position)
        sight = visible(_place(target_in), causal=True)
        memory_sight = visible(_place(target_in), _place(source))
        memories = self.decoder.remember(encoded, source.position)
        decoded: Tensor = self.decoder_norm(self.decoder(x, memories, sight, memory_sight))
        return decoded

    def start(self, source: Rows) -> DecoderState:
        memories = self.decoder.remember(self.encode(source), source.position)
        first = source.position[:, :1]
        full = bool((source.segment > 0).all())
        writer = Place(torch.ones_like(first), first)
        sight = Sight(first, source.position) if full else visible(writer, _place(source))
        nothing = torch.ones(len(first), 1, 0, dtype=torch.bool, device=first.device)
        vocabulary = PrepackedLinear(self.softmax_embedding.weight, self.output_bias)
        return DecoderState(memories, sight, [Cache() for _ in self.decoder], nothing, first.new_zeros(0), vocabulary)

    def step(self, tokens: Int[Tensor, " N"], state: DecoderState) -> Float[Tensor, "N V"]:
        sight = state.write()
        now = sight.query_position
        x = self.target_embedding(tokens.view(now.shape), now)
        memory_sight = state.memory_sight._replace(query_position=now)
        with state.workspace.active():  # steps run one after another, so they can share it
            x = self.decoder(x, state.memories, sight, memory_sight, state.caches)
            return state.vocabulary(self.decoder_norm(x).flatten(0, 1))


def _place(rows: Rows) -> Place:
    return Place(rows.segment, rows.position)
