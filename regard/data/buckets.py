"""Texts taken a window at a time, and sentences of like length together: for work where each has a row to itself.

Decoding, scoring and embedding read any number of texts through this and give results in input order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from queue import Queue
from threading import Thread
from typing import TypeVar

Text = TypeVar("Text")

WINDOW = 1024
"""Texts read ahead to be sorted by length."""


def windows(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """The texts, as many at a time as pay to be sorted."""
    source = iter(texts)
    while window := list(islice(source, WINDOW)):
        yield window


def windows_as_they_come(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts of a slow source: each window is what has come by then, so nobody waits for a full one.

    A fast source is read a window ahead and no further, however long it is.
    """
    came: Queue[str | BaseException | None] = Queue(WINDOW)

    def listen() -> None:
        try:
            for text in texts:
                came.put(text)
            came.put(None)
        except BaseException as error:
            came.put(error)

    Thread(target=listen, name="regard-listen", daemon=True).start()
    while True:
        window: list[str] = []
        while not window or (not came.empty() and len(window) < WINDOW):
            text = came.get()
            if not isinstance(text, str):
                if window:
                    yield window
                if text is not None:
                    raise text
                return
            window.append(text)
        yield window


def by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """The indices of all sentences, longest first, `size` at a time."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for first in range(0, len(lengths), size):
        yield longest_first[first : first + size]


def by_tokens(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """The indices of all sentences, longest first, as many at a time as take `most` positions together, or one."""
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    first = 0
    while first < len(lengths):
        size = max(1, most // max(1, lengths[longest_first[first]]))
        yield longest_first[first : first + size]
        first += size
