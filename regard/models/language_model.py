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

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Rows, sentences_to_rows
from regard.models.blocks import embedding, encoder_layer, final_norm
from regard.models.context import Context, Recorded, tokens_there
from regard.models.interfaces import NextModel
from regard.models.presets import LanguageModelConfig
from regard.nn import Cache, Encoder, Memory, Place, PrepackedLinear, taps, visible


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

    @property
    def context(self) -> int:
        return self.config.n_positions

    def hidden(self, rows: Rows, caches: Sequence[Memory] | None = None) -> Float[Tensor, "B T D"]:
        """What the model makes of each token, given those before it; caches remember what the layers made of them."""
        place = Place(rows.segment, rows.position)
        x = self.embedding(rows.ids, rows.position)
        read: Tensor = self.decoder_norm(self.decoder(x, visible(place, causal=True), caches))
        return read

    def start(self, rows: Rows) -> Context | Recorded:
        """Read the texts that are to be gone on with, one per row, each but for its last token."""
        most = self.config.n_positions - 1
        texts = tokens_there(rows.ids, rows.segment > 0)
        context = self._read([text[max(0, len(text) - most) :] for text in texts], rows.ids.device)
        return Recorded(context) if rows.ids.is_cuda and not self._heard() else context

    def step(self, tokens: Int[Tensor, " N"], state: Context | Recorded) -> Float[Tensor, "N V"]:
        """Write one more token of each text, and give the logits of the next."""
        if state.longest >= self.config.n_positions:
            self._slide(state)
        return state.advance(self._next, tokens)

    def _next(self, tokens: Int[Tensor, " N"], state: Context | Recorded) -> Float[Tensor, "N V"]:
        sight = state.write(tokens)
        x = self.embedding(tokens[:, None], sight.query_position)
        x = self.decoder_norm(self.decoder(x, sight, state.caches))
        return state.vocabulary(x[:, 0])

    def _read(self, texts: Sequence[Sequence[int]], device: torch.device) -> Context:
        rows, caches = sentences_to_rows(texts, pad=0).to(device), [Cache() for _ in self.decoder]
        if rows.ids.shape[1]:
            self.hidden(rows, caches)
        words = PrepackedLinear(self.softmax_embedding.weight)
        return Context(rows.ids, rows.segment > 0, rows.position, list(map(len, texts)), caches, words)

    def _heard(self) -> bool:
        """Somebody listens, who would hear nothing of what is played."""
        return any(tap.heard for tap in taps(self).values())

    def _slide(self, state: Context | Recorded) -> None:
        """Read the last half of every full text again, and all of the others."""
        full = self.config.n_positions
        texts = [text[full - full // 2 :] if len(text) == full else text for text in state.texts()]
        state.become(self._read(texts, self.softmax_embedding.weight.device))
