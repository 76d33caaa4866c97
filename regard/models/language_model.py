"""The Transformer language model: a decoder by itself (GPT-2, Radford et al. 2019), SPEC 4.4.

Every token sees itself and what comes before it in its own text; several texts share a row. The vectors of tokens
are also what the last layer is compared with, where the config ties them.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batches import Rows
from regard.models.blocks import embedding, encoder_layer, final_norm
from regard.models.presets import LanguageModelConfig
from regard.nn import Encoder, Place, visible


class LanguageModel(nn.Module):
    """Reads a text from the left; gives scores of every next token."""

    def __init__(self, config: LanguageModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(config, vocabulary)
        self.decoder = Encoder(encoder_layer(config) for _ in range(config.n_layers))
        self.decoder_norm = final_norm(config)
        self.softmax_embedding = nn.Embedding(vocabulary, config.d_model)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    def forward(self, rows: Rows) -> Float[Tensor, "B T V"]:
        """The logits of the token after each."""
        return self.logits(self.hidden(rows))

    def hidden(self, rows: Rows) -> Float[Tensor, "B T D"]:
        """What the model makes of each token, given those before it."""
        place = Place(rows.segment, rows.position)
        x = self.embedding(rows.ids, rows.position)
        read: Tensor = self.decoder_norm(self.decoder(x, visible(place, place, causal=True)))
        return read

    def logits(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Scores of every token of the vocabulary."""
        return F.linear(hidden, self.softmax_embedding.weight)
