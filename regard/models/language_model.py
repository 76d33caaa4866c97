"""The Transformer language model: decoder-only (GPT-2, Radford et al. 2019).

Every token attends to itself and to the tokens before it in its own text; several texts share a row. Training calls
`loss` on packed rows; generation calls `start` once and `step` for each token, with one text per row.

The context window slides over a text longer than the model's positions:

    prompt       only its last `n_positions` tokens are used
    generation   when all positions are taken, the last half is encoded again from position 0
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import Rows, sentences_to_rows
from regard.models.blocks import build_embedding, build_encoder_layer, build_final_norm
from regard.models.config import TransformerLMConfig
from regard.models.decoder_state import DecoderState, GraphedDecoderState, unpad
from regard.models.interfaces import CausalLM
from regard.nn import EncoderStack, KVCache, KVCacheLike, OutputEmbedding, PackedPositions, make_mask, taps
from regard.nn.tap import any_active

MASKED_ID = 0
"""The id after the end of a prompt in its row; it is masked, so any id would do."""


class TransformerLM(CausalLM):
    """A causal Transformer; returns the logits of the next token at each position."""

    config: TransformerLMConfig

    def __init__(self, config: TransformerLMConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = build_embedding(config, vocabulary_size)
        self.decoder = EncoderStack(build_encoder_layer(config) for _ in range(config.n_layers))
        self.decoder_norm = build_final_norm(config)
        self.softmax_embedding = OutputEmbedding(vocabulary_size, config.d_model)
        if config.tied:
            self.softmax_embedding.weight = self.embedding.tokens.weight

    @property
    def context_length(self) -> int:
        return self.config.n_positions

    def hidden_states(self, rows: Rows, caches: Sequence[KVCacheLike] | None = None) -> Float[Tensor, "B T D"]:
        """Return the last hidden states; `caches`, one for each layer, receive the keys and values."""
        attention_mask = make_mask(PackedPositions(rows.segment, rows.position), causal=True)
        x = self.embedding(rows.ids, rows.position)
        hidden: Tensor = self.decoder_norm(self.decoder(x, attention_mask, caches))
        return hidden

    def start(self, rows: Rows) -> DecoderState | GraphedDecoderState:
        """Encode the prompts, one per row, each without its last token, which is the input of the first `step`."""
        max_length = self.config.n_positions - 1
        texts = unpad(rows.ids, rows.segment > 0)
        state = self._prefill([text[max(0, len(text) - max_length) :] for text in texts], rows.ids.device)
        return GraphedDecoderState(state) if rows.ids.is_cuda and not self._has_active_taps() else state

    def step(self, tokens: Int[Tensor, " N"], state: DecoderState | GraphedDecoderState) -> Float[Tensor, "N V"]:
        """Append one token to each text and return the logits of the next."""
        if state.longest_length >= self.config.n_positions:
            self._slide_window(state)
        return state.advance(self._decode_step, tokens)

    def _decode_step(
        self, tokens: Int[Tensor, " N"], state: DecoderState | GraphedDecoderState
    ) -> Float[Tensor, "N V"]:
        attention_mask = state.append_tokens(tokens)
        x = self.embedding(tokens[:, None], attention_mask.query_position)
        x = self.decoder_norm(self.decoder(x, attention_mask, state.caches))
        return state.output_projection(x[:, 0])

    def _prefill(self, texts: Sequence[Sequence[int]], device: torch.device) -> DecoderState:
        rows, caches = sentences_to_rows(texts, pad_id=MASKED_ID).to(device), [KVCache() for _ in self.decoder]
        if rows.ids.shape[1]:
            self.hidden_states(rows, caches)
        words = self.softmax_embedding.projection()
        return DecoderState(rows.ids, rows.segment > 0, rows.position, list(map(len, texts)), caches, words)

    def _has_active_taps(self) -> bool:
        """Return True if a tap is active, which a replayed CUDA graph would not trigger."""
        return any_active(*taps(self).values())

    def _slide_window(self, state: DecoderState | GraphedDecoderState) -> None:
        """Encode again the last half of every full text, and all of the others."""
        full = self.config.n_positions
        texts = [text[full - full // 2 :] if len(text) == full else text for text in state.unpadded_ids()]
        state.reset(self._prefill(texts, self.embedding.tokens.weight.device))
