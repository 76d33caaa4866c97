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

from regard.nn import Cache, CudaGraphRunner, PrepackedLinear, Sight, Slots

Next = Callable[[Tensor, Any], Tensor]
"""Write the tokens into a context, and give the logits of those that follow."""

ROOM = 512
"""Tokens of a text that a recording has room for at least."""


@dataclass
class Context:
    """What is remembered grows with every token.

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
    vocabulary: PrepackedLinear

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(self.lengths, default=0)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Go on with these rows, in this order; a row may be taken several times or not at all."""
        chosen = rows.flatten()
        self.ids, self.there, self.position = self.ids[chosen], self.there[chosen], self.position[chosen]
        self.lengths = [self.lengths[row] for row in chosen.tolist()]
        for cache in self.caches:
            cache.select(chosen)

    def advance(self, step: Next, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Write one more token of each text."""
        return step(tokens, self)

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
        return tokens_there(self.ids, self.there)

    def become(self, other: Context) -> None:
        """Remember what another does instead."""
        self.__dict__.update(other.__dict__)


class Recorded:
    """A context whose steps are played; see `Context` for what its methods do.

    Everything lies in room for more tokens than there are, and the next one's place is a tensor. Rows that have come to
    their end are written on, unseen, until half of them have: `live` says which row of the memory each text has.
    """

    def __init__(self, context: Context) -> None:
        self.become(context)

    def become(self, other: Context) -> None:
        n, columns = other.ids.shape
        room = max(ROOM, 1 << (2 * columns).bit_length())  # a power of two, as kernels like it
        self.ids, self.there, self.position = (
            torch.cat((part, part.new_zeros(n, room - columns)), 1) for part in (other.ids, other.there, other.position)
        )
        self.lengths = self.position.new_tensor(other.lengths)
        self.place = torch.tensor([columns], device=self.ids.device)
        self.caches = [Slots(room, self.place, cache.remembered() if columns else None) for cache in other.caches]
        self.vocabulary = other.vocabulary
        self.live = torch.arange(n, device=self.ids.device)
        self.columns, self.longest = columns, other.longest
        self._tokens = torch.zeros_like(self.lengths)
        self._graph = CudaGraphRunner()

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        self.live = self.live[rows.flatten()]
        few, twice = 2 * len(self.live) <= len(self.ids), len(self.live.unique()) < len(self.live)
        if few or twice:
            self.become(self._written())

    def advance(self, step: Next, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        if self.columns == self.ids.shape[1]:
            self.become(self._written())
        self._tokens[self.live] = tokens.to(self._tokens.dtype)
        logits = self._graph(lambda: self._advance(step))[self.live]
        self.columns, self.longest = self.columns + 1, self.longest + 1
        return logits

    def _advance(self, step: Next) -> Tensor:
        logits = step(self._tokens, self)
        self.lengths += 1
        self.place += 1
        return logits

    def write(self, tokens: Int[Tensor, " N"]) -> Sight:
        now = self.lengths[:, None]
        self.ids.index_copy_(1, self.place, tokens[:, None].to(self.ids.dtype))
        self.position.index_copy_(1, self.place, now.to(self.position.dtype))
        self.there.index_fill_(1, self.place, True)
        return Sight(now, self.position, self.there[:, None, None])

    def texts(self) -> list[list[int]]:
        return tokens_there(self.ids[self.live], self.there[self.live])

    def _written(self) -> Context:
        """The live texts, in memory that grows."""
        rows = self.live
        ids, there, position = (part[rows, : self.columns] for part in (self.ids, self.there, self.position))
        caches = [Cache.of(slots.upto(self.columns).select(rows)) if self.columns else Cache() for slots in self.caches]
        return Context(ids, there, position, self.lengths[rows].tolist(), caches, self.vocabulary)


def tokens_there(ids: Int[Tensor, "N K"], there: Bool[Tensor, "N K"]) -> list[list[int]]:
    """The tokens of each row that are there."""
    return [list(compress(row, own)) for row, own in zip(ids.tolist(), there.tolist(), strict=True)]
