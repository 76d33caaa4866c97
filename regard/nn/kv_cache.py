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

from regard.nn.kernels import dispatch


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
        self._first = 0
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
        n_new = new.key.shape[2]
        if self._buffer is None or self._first + self.length + n_new > self._buffer.key.shape[2]:
            self._grow(new, max(self.length + n_new, self._capacity))
        assert self._buffer is not None
        start = self._first + self.length
        self._buffer.key[:, :, start : start + n_new] = new.key
        self._buffer.value[:, :, start : start + n_new] = new.value
        self.length += n_new
        return self.contents()

    def contents(self) -> KeyValue:
        """Return the filled part of the buffer."""
        assert self._buffer is not None, "nothing was appended yet"
        filled = slice(self._first, self._first + self.length)
        return KeyValue(self._buffer.key[:, :, filled], self._buffer.value[:, :, filled])

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows in this order; a row may be repeated or dropped."""
        if self._buffer is not None:
            self._buffer = self._buffer.select(rows)

    def drop_first(self, n: int) -> None:
        """Forget the first `n` tokens of every row."""
        assert n <= self.length, f"{n} of {self.length}"
        self._first, self.length = self._first + n, self.length - n

    def extend(self, other: KVCache) -> None:
        """Add the rows of another cache; rows with fewer tokens have zeros before them, to be masked."""
        caches = (self.contents(), other.contents())
        length = max(self.length, other.length)
        capacity = max(self._capacity, length + self._capacity // 2)
        parts = []
        for pair in zip(*caches, strict=True):
            rows = [len(part) for part in pair]
            buffer = pair[0].new_zeros(sum(rows), pair[0].shape[1], capacity, pair[0].shape[3])
            for part, chunk in zip(pair, buffer.split(rows), strict=True):
                chunk[:, :, length - part.shape[2] : length] = part
            parts.append(buffer)
        self._buffer, self._first, self.length, self._capacity = KeyValue(*parts), 0, length, capacity

    def _grow(self, like: KeyValue, capacity: int) -> None:
        """Move to a buffer of twice the required capacity."""
        old = self.contents() if self._buffer is not None else None
        self._first, self._capacity = 0, capacity if old is None else 2 * capacity
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


class StaticBeamKVCache:
    """Keys and values of slots that are at different lengths, in a buffer that neither moves nor grows.

    `append` writes to the `columns` that the decoder state has set, W of each slot, and returns the whole buffer;
    unwritten positions are zeros, which the attention mask must exclude.
    """

    columns: Int[Tensor, "B W"]

    def __init__(self, buffer: KeyValue) -> None:
        self._buffer = buffer

    def append(self, new: KeyValue) -> KeyValue:
        """Write the next tokens of each slot and return the whole buffer."""
        dispatch.append_key_values(*self._buffer, *new, self.columns)
        return self._buffer

    def load(self, slots: Int[Tensor, "N 1"], columns: Int[Tensor, "_ W"], new: KeyValue) -> None:
        """Write tokens to columns of some slots."""
        for part, tokens in zip(self._buffer, new, strict=True):
            part.transpose(1, 2)[slots, columns] = tokens.transpose(1, 2).to(part.dtype)


def allocate_key_values(like: KeyValue, n_rows: int, n_tokens: int) -> KeyValue:
    """Return zeros in place of other rows and tokens; the heads of a token lie side by side."""
    key, value = (part.new_zeros(n_rows, n_tokens, part.shape[1], part.shape[3]).transpose(1, 2) for part in like)
    return KeyValue(key, value)


def _allocate_like(tensor: Tensor, capacity: int) -> Tensor:
    rows, heads, _, width = tensor.shape
    return torch.empty(rows, heads, capacity, width, dtype=tensor.dtype, device=tensor.device)
