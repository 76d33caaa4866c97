"""Buffered reading of texts, and batches of similar length, for inference with one sentence per row.

Decoding, scoring and embedding read any number of texts through this and return results in input order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from threading import Condition, Thread
from typing import TypeVar

TextT = TypeVar("TextT")

BUFFER_SIZE = 1024
"""Texts read ahead to be sorted by length."""
MAX_BUFFER_CHARACTERS = 1 << 24
"""Characters of the texts read ahead: a buffer with that many is full."""


def count_characters(text: object) -> int:
    """Return the characters of a text, or of the texts of a tuple."""
    if isinstance(text, str):
        return len(text)
    return sum(map(count_characters, text)) if isinstance(text, tuple) else 0


def buffered_read(texts: Iterable[TextT]) -> Iterator[list[TextT]]:
    """Yield the texts in buffers of `BUFFER_SIZE`, or of fewer long ones, to be sorted by length."""
    buffer: list[TextT] = []
    n_characters = 0
    for text in texts:
        buffer.append(text)
        n_characters += count_characters(text)
        if len(buffer) >= BUFFER_SIZE or n_characters >= MAX_BUFFER_CHARACTERS:
            yield buffer
            buffer, n_characters = [], 0
    if buffer:
        yield buffer


class _TextQueue:
    """A queue between two threads that blocks while it holds a buffer full of texts; None or an error ends it."""

    def __init__(self) -> None:
        self._texts: deque[str | BaseException | None] = deque()
        self._n_characters = 0
        self._changed = Condition()

    def put(self, text: str | BaseException | None) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._texts) < BUFFER_SIZE and self._n_characters < MAX_BUFFER_CHARACTERS
            )
            self._texts.append(text)
            self._n_characters += count_characters(text)
            self._changed.notify_all()

    def get(self) -> str | BaseException | None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._texts) > 0)
            text = self._texts.popleft()
            self._n_characters -= count_characters(text)
            self._changed.notify_all()
            return text

    def is_empty(self) -> bool:
        return not self._texts


def buffered_read_stream(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts of a slow source: each buffer holds the texts available by then, so none waits for a full one.

    A fast source is read at most one buffer ahead.
    """
    queue = _TextQueue()

    def read() -> None:
        try:
            for text in texts:
                queue.put(text)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    Thread(target=read, name="regard-read", daemon=True).start()
    while True:
        buffer: list[str] = []
        n_characters = 0
        while not buffer or not (
            queue.is_empty() or len(buffer) >= BUFFER_SIZE or n_characters >= MAX_BUFFER_CHARACTERS
        ):
            text = queue.get()
            if not isinstance(text, str):
                if buffer:
                    yield buffer
                if text is not None:
                    raise text
                return
            buffer.append(text)
            n_characters += len(text)
        yield buffer


def batch_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of all sentences, longest first, `batch_size` at a time."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for first in range(0, len(lengths), batch_size):
        yield longest_first[first : first + batch_size]


def batch_by_tokens(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the indices of all sentences, longest first, in batches of at most `max_tokens` positions, or of one."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = 0
    while first < len(lengths):
        size = max(1, max_tokens // max(1, lengths[longest_first[first]]))
        yield longest_first[first : first + size]
        first += size
