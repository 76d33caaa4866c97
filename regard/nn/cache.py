"""What attention remembers while a text is written token by token.

`KeyValue` is the memory of one attention for a whole text; `Cache` is one that grows, `Slots` one that stays where it
is. The model's decoder state (models/) holds one of them for each layer; generation (generate/) never looks inside.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValue(NamedTuple):
    """Projected keys and values of all heads."""

    key: Float[Tensor, "B H K E"]
    value: Float[Tensor, "B H K Ev"]

    def select(self, rows: Int[Tensor, " N"]) -> KeyValue:
        """The memory of these rows, in this order."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


@runtime_checkable
class Memory(Protocol):
    """What self-attention adds the keys and values of new tokens to, and gets those of all tokens from."""

    def append(self, new: KeyValue) -> KeyValue: ...


class Cache:
    """Keys and values of the tokens written so far, in room kept for more."""

    def __init__(self, room: int = 32) -> None:
        self.length = 0
        self._room = room
        self._kept: KeyValue | None = None

    @classmethod
    def of(cls, kept: KeyValue) -> Cache:
        """One that remembers this already."""
        cache = cls()
        cache._kept, cache.length = kept, kept.key.shape[2]
        return cache

    def append(self, new: KeyValue) -> KeyValue:
        """Add the next tokens and give back everything remembered."""
        end = self.length + new.key.shape[2]
        if self._kept is None or end > self._kept.key.shape[2]:
            self._grow(new, max(end, self._room))
        assert self._kept is not None
        self._kept.key[:, :, self.length : end] = new.key
        self._kept.value[:, :, self.length : end] = new.value
        self.length = end
        return self.remembered()

    def remembered(self) -> KeyValue:
        """The filled part."""
        assert self._kept is not None, "nothing was appended yet"
        return KeyValue(self._kept.key[:, :, : self.length], self._kept.value[:, :, : self.length])

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows, in this order; a row may be taken several times or not at all."""
        if self._kept is not None:
            self._kept = self._kept.select(rows)

    def _grow(self, like: KeyValue, room: int) -> None:
        """Move to room for twice as many tokens."""
        old = self.remembered() if self._kept is not None else None
        self._room = room if old is None else 2 * room
        self._kept = KeyValue(*(_room_like(part, self._room) for part in like))
        if old is not None:
            self._kept.key[:, :, : self.length] = old.key
            self._kept.value[:, :, : self.length] = old.value


class Slots:
    """Keys and values in room that neither moves nor grows; a tensor shared by all layers says where the next go.

    All of the room is given back; what is not written yet is zeros, and for the sight to hide.
    """

    def __init__(self, room: int, place: Int[Tensor, " 1"], kept: KeyValue | None = None) -> None:
        self._room, self._place = room, place
        self._kept: KeyValue | None = None
        if kept is not None:
            self._kept = self._zeros(kept)
            for part, old in zip(self._kept, kept, strict=True):
                part[:, :, : old.shape[2]] = old

    def append(self, new: KeyValue) -> KeyValue:
        """Add the next token of each row and give back the whole room."""
        if self._kept is None:
            self._kept = self._zeros(new)
        for part, one in zip(self._kept, new, strict=True):
            part.index_copy_(2, self._place, one)
        return self._kept

    def upto(self, end: int) -> KeyValue:
        """The part before this place."""
        assert self._kept is not None, "nothing was appended yet"
        return KeyValue(self._kept.key[:, :, :end], self._kept.value[:, :, :end])

    def _zeros(self, like: KeyValue) -> KeyValue:
        return KeyValue(*(_room_like(part, self._room).zero_() for part in like))


def _room_like(part: Tensor, room: int) -> Tensor:
    rows, heads, _, width = part.shape
    return torch.empty(rows, heads, room, width, dtype=part.dtype, device=part.device)
