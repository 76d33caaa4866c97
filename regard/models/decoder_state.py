"""Decoder states of a language model: ids, positions and KV caches of the texts being generated, one per row.

`DecoderState` grows with every token. `GraphedDecoderState` is its counterpart on a GPU, where launching the hundreds
of small kernels of a step takes longer than running them: its tensors are static, so a step is captured as a CUDA graph
and replayed for each token, until the capacity is used up or half of the texts have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn import AttentionMask, CudaGraphRunner, KVCache, OutputProjection, StaticKVCache

StepFunction = Callable[[Tensor, Any], Tensor]
"""Append tokens to a decoder state and return the logits of the next ones."""

MIN_CAPACITY = 512
"""The smallest capacity of a `GraphedDecoderState`, in tokens."""


@dataclass
class DecoderState:
    """A decoder state that grows with every token.

    Prompts may differ in length: `token_mask` excludes padding, and new tokens follow the longest prompt.

        row 0   The cat  .   .  | sat
        row 1   A   dog that is | barking
    """

    ids: Int[Tensor, "N K"]
    token_mask: Bool[Tensor, "N K"]
    position: Int[Tensor, "N K"]
    lengths: list[int]
    caches: list[KVCache]
    output_projection: OutputProjection

    @property
    def longest_length(self) -> int:
        """The number of tokens of the longest text."""
        return max(self.lengths, default=0)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these rows in this order; a row may be repeated or dropped."""
        chosen = rows.flatten()
        self.ids, self.token_mask, self.position = self.ids[chosen], self.token_mask[chosen], self.position[chosen]
        self.lengths = [self.lengths[row] for row in chosen.tolist()]
        for cache in self.caches:
            cache.select(chosen)

    def advance(self, step: StepFunction, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Run a step with one more token of each text."""
        return step(tokens, self)

    def append_tokens(self, tokens: Int[Tensor, " N"]) -> AttentionMask:
        """Append one token to each text and return its attention mask: all tokens of its own text."""
        now = self.position.new_tensor(self.lengths)[:, None]
        self.ids = torch.cat((self.ids, tokens[:, None].to(self.ids.dtype)), 1)
        self.token_mask = torch.cat((self.token_mask, torch.ones_like(now, dtype=torch.bool)), 1)
        self.position = torch.cat((self.position, now), 1)
        self.lengths = [length + 1 for length in self.lengths]
        unpadded = min(self.lengths) == self.ids.shape[1]
        return AttentionMask(now, self.position, None if unpadded else self.token_mask[:, None, None])

    def unpadded_ids(self) -> list[list[int]]:
        """Return the tokens of each text."""
        return unpad(self.ids, self.token_mask)

    def reset(self, other: DecoderState) -> None:
        """Take over the contents of another state."""
        self.__dict__.update(other.__dict__)


class GraphedDecoderState:
    """A decoder state whose steps are replayed as a CUDA graph; its methods are those of `DecoderState`.

    All tensors have a fixed capacity, and the write index is a tensor. Rows of texts that have ended are still
    computed, unused, until half of them have ended: `active` holds the row of each text that continues.
    """

    def __init__(self, state: DecoderState) -> None:
        self.reset(state)

    def reset(self, other: DecoderState) -> None:
        n, columns = other.ids.shape
        capacity = max(MIN_CAPACITY, 1 << (2 * columns).bit_length())  # a power of two suits kernels
        self.ids, self.token_mask, self.position = (
            torch.cat((tensor, tensor.new_zeros(n, capacity - columns)), 1)
            for tensor in (other.ids, other.token_mask, other.position)
        )
        self.lengths = self.position.new_tensor(other.lengths)
        self.cache_position = torch.tensor([columns], device=self.ids.device)
        self.caches = [
            StaticKVCache(capacity, self.cache_position, cache.contents() if columns else None)
            for cache in other.caches
        ]
        self.output_projection = other.output_projection
        self.active = torch.arange(n, device=self.ids.device)
        self.n_columns, self.longest_length = columns, other.longest_length
        self._input_ids = torch.zeros_like(self.lengths)
        self._graph_runner = CudaGraphRunner()

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        self.active = self.active[rows.flatten()]
        mostly_unused = 2 * len(self.active) <= len(self.ids)
        has_repeats = len(self.active.unique()) < len(self.active)
        if mostly_unused or has_repeats:
            self.reset(self._to_decoder_state())

    def advance(self, step: StepFunction, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        if self.n_columns == self.ids.shape[1]:
            self.reset(self._to_decoder_state())
        self._input_ids[self.active] = tokens.to(self._input_ids.dtype)
        logits = self._graph_runner(lambda: self._advance_in_place(step))[self.active]
        self.n_columns, self.longest_length = self.n_columns + 1, self.longest_length + 1
        return logits

    def _advance_in_place(self, step: StepFunction) -> Tensor:
        logits = step(self._input_ids, self)
        self.lengths += 1
        self.cache_position += 1
        return logits

    def append_tokens(self, tokens: Int[Tensor, " N"]) -> AttentionMask:
        now = self.lengths[:, None]
        self.ids.index_copy_(1, self.cache_position, tokens[:, None].to(self.ids.dtype))
        self.position.index_copy_(1, self.cache_position, now.to(self.position.dtype))
        self.token_mask.index_fill_(1, self.cache_position, True)
        return AttentionMask(now, self.position, self.token_mask[:, None, None])

    def unpadded_ids(self) -> list[list[int]]:
        return unpad(self.ids[self.active], self.token_mask[self.active])

    def _to_decoder_state(self) -> DecoderState:
        """Return the active texts as a state that grows."""
        rows = self.active
        ids, token_mask, position = (
            tensor[rows, : self.n_columns] for tensor in (self.ids, self.token_mask, self.position)
        )
        caches = [
            KVCache.from_kv(cache.prefix(self.n_columns).select(rows)) if self.n_columns else KVCache()
            for cache in self.caches
        ]
        return DecoderState(ids, token_mask, position, self.lengths[rows].tolist(), caches, self.output_projection)


def unpad(ids: Int[Tensor, "N K"], token_mask: Bool[Tensor, "N K"]) -> list[list[int]]:
    """Return the tokens of each row without padding."""
    return [list(compress(row, mask)) for row, mask in zip(ids.tolist(), token_mask.tolist(), strict=True)]
