"""The Transformer language model: a decoder by itself (GPT-2, Radford et al. 2019), SPEC 4.4.

Every token sees itself and what comes before it in its own text; several texts share a row. The vectors of tokens
are also what the last layer is compared with, where the config ties them. Training calls `loss` on packed rows;
generation calls `start` once and `step` for each token, with one text per row.

A text longer than the model's positions slides:

    prompt     only its last `n_positions` tokens are read
    writing    when all positions are taken, the last half of them is read again from position 0, and it goes on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows, sentences_to_rows
from regard.models.blocks import embedding, encoder_layer, final_norm
from regard.models.interfaces import NextModel
from regard.models.presets import LanguageModelConfig
from regard.nn import Cache, Encoder, FixedProduct, Place, Sight, visible
from regard.progress import warn


@dataclass
class Context:
    """What the model remembers of the texts it goes on with, one in each row.

    Texts of a prompt may differ in length: `there` says where in its row a text has a token, and what is written
    follows behind the longest.

        read   The cat  .   .  | sat
        read   A   dog that is | barking
    """

    ids: Int[Tensor, "N K"]
    there: Bool[Tensor, "N K"]
    position: Int[Tensor, "N K"]
    lengths: list[int]
    caches: list[Cache]
    vocabulary: FixedProduct

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these rows, in this order; a row may be taken several times or not at all."""
        chosen = rows.flatten()
        self.ids, self.there, self.position = self.ids[chosen], self.there[chosen], self.position[chosen]
        self.lengths = [self.lengths[row] for row in chosen.tolist()]
        for cache in self.caches:
            cache.select(chosen)

    def write(self, tokens: Int[Tensor, " N"]) -> Sight:
        """What the tokens now written may look at: themselves and all of their own text."""
        now = self.position.new_tensor(self.lengths)[:, None]
        self.ids = torch.cat((self.ids, tokens[:, None].to(self.ids.dtype)), 1)
        self.there = torch.cat((self.there, torch.ones_like(now, dtype=torch.bool)), 1)
        self.position = torch.cat((self.position, now), 1)
        self.lengths = [length + 1 for length in self.lengths]
        even = min(self.lengths) == self.ids.shape[1]
        return Sight(now, self.position, None if even else self.there[:, None, None])

    def texts(self) -> list[list[int]]:
        """The tokens remembered of each text."""
        return [row[there].tolist() for row, there in zip(self.ids, self.there, strict=True)]


class LanguageModel(NextModel):
    """Reads a text from the left; gives scores of every next token."""

    config: LanguageModelConfig

    def __init__(self, config: LanguageModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(config, vocabulary)
        self.decoder = Encoder(encoder_layer(config) for _ in range(config.n_layers))
        self.decoder_norm = final_norm(config)
        self.softmax_embedding = nn.Embedding(vocabulary, config.d_model)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    def hidden(self, rows: Rows, caches: Sequence[Cache] | None = None) -> Float[Tensor, "B T D"]:
        """What the model makes of each token, given those before it; caches remember what the layers made of them."""
        place = Place(rows.segment, rows.position)
        x = self.embedding(rows.ids, rows.position)
        read: Tensor = self.decoder_norm(self.decoder(x, visible(place, causal=True), caches))
        return read

    def start(self, rows: Rows) -> Context:
        """Read the texts that are to be gone on with, one per row, each but for its last token."""
        most = self.config.n_positions - 1
        texts = [row[segment > 0].tolist() for row, segment in zip(rows.ids, rows.segment, strict=True)]
        longest = max(map(len, texts), default=0)
        if longest > most:
            warn(f"a prompt has {longest + 1:,} tokens; the model sees the last {most + 1:,}")
        return self._read([text[max(0, len(text) - most) :] for text in texts], rows.ids.device)

    def step(self, tokens: Int[Tensor, " N"], state: Context) -> Float[Tensor, "N V"]:
        """Write one more token of each text, and give the logits of the next."""
        if max(state.lengths, default=0) >= self.config.n_positions:
            self._slide(state)
        sight = state.write(tokens)
        x = self.embedding(tokens[:, None], sight.query_position)
        x = self.decoder_norm(self.decoder(x, sight, state.caches))
        return state.vocabulary(x[:, 0])

    def _read(self, texts: Sequence[Sequence[int]], device: torch.device) -> Context:
        rows, caches = sentences_to_rows(texts, pad=0).to(device), [Cache() for _ in self.decoder]
        if rows.ids.shape[1]:
            self.hidden(rows, caches)
        words = FixedProduct(self.softmax_embedding.weight)
        return Context(rows.ids, rows.segment > 0, rows.position, list(map(len, texts)), caches, words)

    def _slide(self, state: Context) -> None:
        """Read the last half of every full text again, and all of the others."""
        full = self.config.n_positions
        texts = [text[full - full // 2 :] if len(text) == full else text for text in state.texts()]
        again = self._read(texts, state.ids.device)
        state.ids, state.there, state.position = again.ids, again.there, again.position
        state.lengths, state.caches = again.lengths, again.caches
