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

    def contents(self) -> KeyValue:
        """Return itself, as a cache returns what it holds."""
        return self


@runtime_checkable
class KVCacheLike(Protocol):
    """A cache that self-attention can append to."""

    def append(self, new: KeyValue) -> KeyValue: ...


class KVCache:
    """Keys and values of the tokens decoded so far, in a buffer that doubles when it is full.

    Rows that are dropped stay in the buffer until it moves, and make room for rows that join.
    """

    def __init__(self, capacity: int = 32) -> None:
        self.length = 0
        self.first = 0
        self._capacity = capacity
        self._buffer: KeyValue | None = None
        self._rows: list[int] | None = None

    @classmethod
    def from_kv(cls, kv: KeyValue) -> KVCache:
        """Return a cache that holds these keys and values."""
        cache = cls()
        cache._buffer, cache.length = kv, kv.key.shape[2]
        return cache

    @property
    def buffer_rows(self) -> list[int]:
        """The row of the buffer that each row is kept in."""
        n_rows = 0 if self._buffer is None else len(self._buffer.key)
        return list(range(n_rows)) if self._rows is None else self._rows

    def append(self, new: KeyValue) -> KeyValue:
        """Append the next tokens and return the keys and values of all tokens."""
        n_new = new.key.shape[2]
        self._gather_rows()
        buffer = self.reserve(n_new, new)
        start = self.first + self.length - n_new
        buffer.key[:, :, start : start + n_new] = new.key
        buffer.value[:, :, start : start + n_new] = new.value
        return self.contents()

    def reserve(self, n_new: int, like: KeyValue) -> KeyValue:
        """Make room for the next tokens, which the caller writes behind the others; return the whole buffer.

        Rows are those of `buffer_rows`, each one of its own; the first token of all is in column `first`.
        """
        if self._rows is not None and len(set(self._rows)) < len(self._rows):
            self._gather_rows()
        if self._buffer is None or self.first + self.length + n_new > self._buffer.key.shape[2]:
            self._grow(like, self.length + n_new)
        assert self._buffer is not None
        self.length += n_new
        return self._buffer

    def contents(self) -> KeyValue:
        """Return the filled part of the buffer."""
        assert self._buffer is not None, "nothing was appended yet"
        self._gather_rows()
        filled = slice(self.first, self.first + self.length)
        return KeyValue(self._buffer.key[:, :, filled], self._buffer.value[:, :, filled])

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows in this order; a row may be repeated or dropped."""
        if self._buffer is not None:
            before = self.buffer_rows
            self._rows = [before[row] for row in rows.tolist()]

    def drop_first(self, n: int) -> None:
        """Forget the first `n` tokens of every row."""
        assert n <= self.length, f"{n} of {self.length}"
        self.first, self.length = self.first + n, self.length - n

    def extend(self, other: KVCache, *, left_aligned: bool = False) -> None:
        """Add the rows of another cache; rows with fewer tokens have zeros before them, or behind, to be masked."""
        joining, rows = other.contents(), self.buffer_rows
        length = max(self.length, other.length)
        assert self._buffer is not None, "nothing to extend"
        free = sorted(set(range(len(self._buffer.key))) - set(rows))
        shift = 0 if left_aligned else length - self.length
        has_room = self.first + length <= self._buffer.key.shape[2] and len(free) >= len(joining.key)
        if shift or not has_room or len(set(rows)) < len(rows):
            self._capacity = max(self._capacity, length + self._capacity // 2)
            self._move(len(rows) + len(joining.key), shift)
            rows, free = list(range(len(rows))), list(range(len(rows), len(rows) + len(joining.key)))
        taken = free[: len(joining.key)]
        start = 0 if left_aligned else length - other.length
        for part, new in zip(self._buffer, joining, strict=True):
            filled = part[:, :, self.first : self.first + length]
            filled[taken] = 0.0
            filled[:, :, start : start + other.length][taken] = new
        self.length, self._rows = length, [*rows, *taken]

    def _move(self, n_rows: int, shift: int) -> None:
        """Move to a buffer of zeros with so many rows; the tokens come `shift` columns later."""
        kept = self.contents()
        buffer = KeyValue(*(_allocate_like(part, self._capacity, n_rows).zero_() for part in kept))
        for part, old in zip(buffer, kept, strict=True):
            part[: len(old), :, shift : shift + self.length] = old
        self._buffer, self.first = buffer, 0

    def _gather_rows(self) -> None:
        """Copy the rows to where they are in order."""
        if self._rows is not None and self._buffer is not None:
            self._buffer = self._buffer.select(torch.tensor(self._rows, device=self._buffer.key.device))
        self._rows = None

    def _grow(self, like: KeyValue, n_tokens: int) -> None:
        """Move to a buffer with room for twice as many tokens, with all rows where they are."""
        old, filled = self._buffer, slice(self.first, self.first + self.length)
        self._capacity = self._capacity if old is None else max(self._capacity, 2 * n_tokens)
        self._capacity = max(self._capacity, n_tokens)
        self._buffer = KeyValue(*(_allocate_like(part, self._capacity, len(part)) for part in old or like))
        for part, before in zip(self._buffer, old or (), strict=False):
            part[:, :, : self.length] = before[:, :, filled]
        self.first = 0


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
        return KeyValue(*(_allocate_like(part, self._capacity, len(part)).zero_() for part in like))


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


def _allocate_like(tensor: Tensor, capacity: int, n_rows: int) -> Tensor:
    _, heads, _, width = tensor.shape
    return torch.empty(n_rows, heads, capacity, width, dtype=tensor.dtype, device=tensor.device)
