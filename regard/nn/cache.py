"""What attention remembers while a text is written token by token.

`KeyValue` is the memory of one attention for a whole text; `Cache` is one that grows. The model's decoder state
(models/) holds one of each per layer; generation (generate/) never looks inside.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Cache:
    """Keys and values of the tokens written so far, in room kept for more."""

    def __init__(self, room: int = 32) -> None:
        self.length = 0
        self._room = room
        self._kept: KeyValue | None = None

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


def _room_like(part: Tensor, room: int) -> Tensor:
    rows, heads, _, width = part.shape
    return torch.empty(rows, heads, room, width, dtype=part.dtype, device=part.device)
