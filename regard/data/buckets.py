"""Texts taken a buffer at a time, and sentences of like length together: for work where each has a row to itself.

Decoding, scoring and embedding read any number of texts through this and give results in input order.
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
    """The texts, as many at a time as pay to be sorted."""
    source = iter(texts)
    while buffer := list(islice(source, BUFFER_SIZE)):
        yield buffer


def buffered_read_stream(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts of a slow source: each buffer is what has come by then, so nobody waits for a full one.

    A fast source is read a buffer ahead and no further, however long it is.
    """
    came: Queue[str | BaseException | None] = Queue(BUFFER_SIZE)

    def listen() -> None:
        try:
            for text in texts:
                came.put(text)
            came.put(None)
        except BaseException as error:
            came.put(error)

    Thread(target=listen, name="regard-listen", daemon=True).start()
    while True:
        buffer: list[str] = []
        while not buffer or (not came.empty() and len(buffer) < BUFFER_SIZE):
            text = came.get()
            if not isinstance(text, str):
                if buffer:
                    yield buffer
                if text is not None:
                    raise text
                return
            buffer.append(text)
        yield buffer


def batch_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """The indices of all sentences, longest first, `size` at a time."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for first in range(0, len(lengths), batch_size):
        yield longest_first[first : first + batch_size]


def batch_by_tokens(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """The indices of all sentences, longest first, as many at a time as take `most` positions together, or one."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = 0
    while first < len(lengths):
        size = max(1, max_tokens // max(1, lengths[longest_first[first]]))
        yield longest_first[first : first + size]
        first += size
