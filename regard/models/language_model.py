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
from regard.models.blocks import build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerLMConfig
from regard.models.decoder_state import DecoderState, GraphedDecoderState, unpad
from regard.models.interfaces import CausalLM
from regard.nn import EncoderStack, KVCache, KVCacheLike, PackedPositions, PrepackedLinear, make_mask, taps


class TransformerLM(CausalLM):
    """Reads a text from the left; gives scores of every next token."""

    config: TransformerLMConfig

    def __init__(self, config: TransformerLMConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_embedding(config, vocabulary_size)
        self.decoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))
        self.decoder_norm = build_final_norm(config)
        self.softmax_embedding = nn.Embedding(vocabulary_size, config.d_model)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    @property
    def context_length(self) -> int:
        return self.config.n_positions

    def hidden_states(self, rows: Rows, caches: Sequence[KVCacheLike] | None = None) -> Float[Tensor, "B T D"]:
        """What the model makes of each token, given those before it; caches remember what the layers made of them."""
        place = PackedPositions(rows.segment, rows.position)
        x = self.embedding(rows.ids, rows.position)
        read: Tensor = self.decoder_norm(self.decoder(x, make_mask(place, causal=True), caches))
        return read

    def start(self, rows: Rows) -> DecoderState | GraphedDecoderState:
        """Read the texts that are to be gone on with, one per row, each but for its last token."""
        most = self.config.n_positions - 1
        texts = unpad(rows.ids, rows.segment > 0)
        context = self._prefill([text[max(0, len(text) - most) :] for text in texts], rows.ids.device)
        return GraphedDecoderState(context) if rows.ids.is_cuda and not self._has_active_taps() else context

    def step(self, tokens: Int[Tensor, " N"], state: DecoderState | GraphedDecoderState) -> Float[Tensor, "N V"]:
        """Write one more token of each text, and give the logits of the next."""
        if state.longest_length >= self.config.n_positions:
            self._slide_window(state)
        return state.advance(self._decode_step, tokens)

    def _decode_step(
        self, tokens: Int[Tensor, " N"], state: DecoderState | GraphedDecoderState
    ) -> Float[Tensor, "N V"]:
        sight = state.append_tokens(tokens)
        x = self.embedding(tokens[:, None], sight.query_position)
        x = self.decoder_norm(self.decoder(x, sight, state.caches))
        return state.output_projection(x[:, 0])

    def _prefill(self, texts: Sequence[Sequence[int]], device: torch.device) -> DecoderState:
        rows, caches = sentences_to_rows(texts, pad_id=0).to(device), [KVCache() for _ in self.decoder]
        if rows.ids.shape[1]:
            self.hidden_states(rows, caches)
        words = PrepackedLinear(self.softmax_embedding.weight)
        return DecoderState(rows.ids, rows.segment > 0, rows.position, list(map(len, texts)), caches, words)

    def _has_active_taps(self) -> bool:
        """Somebody listens, who would hear nothing of what is played."""
        return any(tap.active for tap in taps(self).values())

    def _slide_window(self, state: DecoderState | GraphedDecoderState) -> None:
        """Read the last half of every full text again, and all of the others."""
        full = self.config.n_positions
        texts = [text[full - full // 2 :] if len(text) == full else text for text in state.unpadded_ids()]
        state.reset(self._prefill(texts, self.softmax_embedding.weight.device))
