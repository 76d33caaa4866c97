"""What a language model remembers of the texts it goes on with, one in each row.

`Context` grows with every token. `Recorded` is the same for a GPU, where launching the hundreds of small kernels of a
step takes longer than running them: it works on memory that stays where it is, so that a step is recorded, as a CUDA
graph, and played for each token that follows, until there is no more room or half of the texts have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn import AttentionMask, CudaGraphRunner, KVCache, PrepackedLinear, StaticKVCache

StepFunction = Callable[[Tensor, Any], Tensor]
"""Write the tokens into a context, and give the logits of those that follow."""

MIN_CAPACITY = 512
"""Tokens of a text that a recording has room for at least."""


@dataclass
class DecoderState:
    """What is remembered grows with every token.

    Texts of a prompt may differ in length: `there` says where in its row a text has a token, and what is written
    follows behind the longest.

        read   The cat  .   .  | sat
        read   A   dog that is | barking
    """

    ids: Int[Tensor, "N K"]
    token_mask: Bool[Tensor, "N K"]
    position: Int[Tensor, "N K"]
    lengths: list[int]
    caches: list[KVCache]
    output_projection: PrepackedLinear

    @property
    def longest_length(self) -> int:
        """Tokens of the longest text."""
        return max(self.lengths, default=0)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these rows, in this order; a row may be taken several times or not at all."""
        chosen = rows.flatten()
        self.ids, self.token_mask, self.position = self.ids[chosen], self.token_mask[chosen], self.position[chosen]
        self.lengths = [self.lengths[row] for row in chosen.tolist()]
        for cache in self.caches:
            cache.select(chosen)

    def advance(self, step: StepFunction, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Write one more token of each text."""
        return step(tokens, self)

    def append_tokens(self, tokens: Int[Tensor, " N"]) -> AttentionMask:
        """What the tokens now written may look at: themselves and all of their own text."""
        now = self.position.new_tensor(self.lengths)[:, None]
        self.ids = torch.cat((self.ids, tokens[:, None].to(self.ids.dtype)), 1)
        self.token_mask = torch.cat((self.token_mask, torch.ones_like(now, dtype=torch.bool)), 1)
        self.position = torch.cat((self.position, now), 1)
        self.lengths = [length + 1 for length in self.lengths]
        even = min(self.lengths) == self.ids.shape[1]
        return AttentionMask(now, self.position, None if even else self.token_mask[:, None, None])

    def unpadded_ids(self) -> list[list[int]]:
        """The tokens remembered of each text."""
        return unpad(self.ids, self.token_mask)

    def reset(self, other: DecoderState) -> None:
        """Remember what another does instead."""
        self.__dict__.update(other.__dict__)


class GraphedDecoderState:
    """A context whose steps are played; see `Context` for what its methods do.

    Everything lies in room for more tokens than there are, and the next one's place is a tensor. Rows that have come to
    their end are written on, unseen, until half of them have: `live` says which row of the memory each text has.
    """

    def __init__(self, state: DecoderState) -> None:
        self.reset(state)

    def reset(self, other: DecoderState) -> None:
        n, columns = other.ids.shape
        room = max(MIN_CAPACITY, 1 << (2 * columns).bit_length())  # a power of two, as kernels like it
        self.ids, self.token_mask, self.position = (
            torch.cat((part, part.new_zeros(n, room - columns)), 1)
            for part in (other.ids, other.token_mask, other.position)
        )
        self.lengths = self.position.new_tensor(other.lengths)
        self.cache_position = torch.tensor([columns], device=self.ids.device)
        self.caches = [
            StaticKVCache(room, self.cache_position, cache.contents() if columns else None) for cache in other.caches
        ]
        self.output_projection = other.output_projection
        self.active = torch.arange(n, device=self.ids.device)
        self.n_columns, self.longest_length = columns, other.longest_length
        self._input_ids = torch.zeros_like(self.lengths)
        self._graph_runner = CudaGraphRunner()

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        self.active = self.active[rows.flatten()]
        few, twice = 2 * len(self.active) <= len(self.ids), len(self.active.unique()) < len(self.active)
        if few or twice:
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
        """The live texts, in memory that grows."""
        rows = self.active
        ids, there, position = (part[rows, : self.n_columns] for part in (self.ids, self.token_mask, self.position))
        caches = [
            KVCache.from_kv(slots.prefix(self.n_columns).select(rows)) if self.n_columns else KVCache()
            for slots in self.caches
        ]
        return DecoderState(ids, there, position, self.lengths[rows].tolist(), caches, self.output_projection)


def unpad(ids: Int[Tensor, "N K"], token_mask: Bool[Tensor, "N K"]) -> list[list[int]]:
    """The tokens of each row that are there."""
    return [list(compress(row, own)) for row, own in zip(ids.tolist(), token_mask.tolist(), strict=True)]
