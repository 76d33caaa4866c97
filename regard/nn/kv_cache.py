"""Key-value caches for incremental decoding.

`KeyValue` holds the projected keys and values of a text; `KVCache` grows with every token; `StaticKVCache` has a fixed
capacity and address, as CUDA graphs need. The decoder state of a model (models/) holds one cache for each layer;
generation (generate/) never looks inside.
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
        """Return these rows in this order."""
        return KeyValue(self.key.index_select(0, rows), self.value.index_select(0, rows))


@runtime_checkable
class KVCacheLike(Protocol):
    """A cache that self-attention can append to."""

    def append(self, new: KeyValue) -> KeyValue: ...


class KVCache:
    """Keys and values of the tokens decoded so far, in a buffer that doubles when it is full."""

    def __init__(self, capacity: int = 32) -> None:
        self.length = 0
        self._capacity = capacity
        self._buffer: KeyValue | None = None

    @classmethod
    def from_kv(cls, kv: KeyValue) -> KVCache:
        """Return a cache that holds these keys and values."""
        cache = cls()
        cache._buffer, cache.length = kv, kv.key.shape[2]
        return cache

    def append(self, new: KeyValue) -> KeyValue:
        """Append the next tokens and return the keys and values of all tokens."""
        end = self.length + new.key.shape[2]
        if self._buffer is None or end > self._buffer.key.shape[2]:
            self._grow(new, max(end, self._capacity))
        assert self._buffer is not None
        self._buffer.key[:, :, self.length : end] = new.key
        self._buffer.value[:, :, self.length : end] = new.value
        self.length = end
        return self.contents()

    def contents(self) -> KeyValue:
        """Return the filled part of the buffer."""
        assert self._buffer is not None, "nothing was appended yet"
        return KeyValue(self._buffer.key[:, :, : self.length], self._buffer.value[:, :, : self.length])

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows in this order; a row may be repeated or dropped."""
        if self._buffer is not None:
            self._buffer = self._buffer.select(rows)

    def _grow(self, like: KeyValue, capacity: int) -> None:
        """Move to a buffer of twice the required capacity."""
        old = self.contents() if self._buffer is not None else None
        self._capacity = capacity if old is None else 2 * capacity
        self._buffer = KeyValue(*(_allocate_like(part, self._capacity) for part in like))
        if old is not None:
            self._buffer.key[:, :, : self.length] = old.key
            self._buffer.value[:, :, : self.length] = old.value


class StaticKVCache:
    """Keys and values in a buffer that neither moves nor grows; a tensor shared by all layers holds the write index.

    `append` returns the whole buffer; unwritten positions are zeros, which the attention mask must exclude.
    """

    def __init__(self, capacity: int, cache_position: Int[Tensor, " 1"], initial: KeyValue | None = None) -> None:
        self._capacity, self._cache_position = capacity, cache_position
        self._buffer: KeyValue | None = None
        if initial is not None:
            self._buffer = self._allocate_zeros(initial)
            for part, old in zip(self._buffer, initial, strict=True):
                part[:, :, : old.shape[2]] = old

    def append(self, new: KeyValue) -> KeyValue:
        """Write the next token of each row and return the whole buffer."""
        if self._buffer is None:
            self._buffer = self._allocate_zeros(new)
        for part, one in zip(self._buffer, new, strict=True):
            part.index_copy_(2, self._cache_position, one)
        return self._buffer

    def prefix(self, end: int) -> KeyValue:
        """Return the first `end` positions."""
        assert self._buffer is not None, "nothing was appended yet"
        return KeyValue(self._buffer.key[:, :, :end], self._buffer.value[:, :, :end])

    def _allocate_zeros(self, like: KeyValue) -> KeyValue:
        return KeyValue(*(_allocate_like(part, self._capacity).zero_() for part in like))


def _allocate_like(tensor: Tensor, capacity: int) -> Tensor:
    rows, heads, _, width = tensor.shape
    return torch.empty(rows, heads, capacity, width, dtype=tensor.dtype, device=tensor.device)
