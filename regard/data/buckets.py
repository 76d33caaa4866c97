"""Buffered reading of texts, and batches of similar length, for inference with one sentence per row.

Decoding, scoring and embedding read any number of texts through this and return results in input order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

TextT = TypeVar("TextT")

BUFFER_SIZE = 1024
"""Texts read ahead to be sorted by length."""


def buffered_read(texts: Iterable[TextT]) -> Iterator[list[TextT]]:
    """Yield the texts in buffers of `BUFFER_SIZE`, to be sorted by length."""
    source = iter(texts)
    while buffer := list(islice(source, BUFFER_SIZE)):
        yield buffer


def buffered_read_stream(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts of a slow source: each buffer holds the texts available by then, so none waits for a full one.

    A fast source is read at most one buffer ahead.
    """
    queue: Queue[str | BaseException | None] = Queue(BUFFER_SIZE)

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
        while not buffer or (not queue.empty() and len(buffer) < BUFFER_SIZE):
            text = queue.get()
            if not isinstance(text, str):
                if buffer:
                    yield buffer
                if text is not None:
                    raise text
                return
            buffer.append(text)
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
