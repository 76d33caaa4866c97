"""Language-model windows: long texts split into windows, at other offsets in each epoch.

A text of n + 1 tokens has n to predict. Each of its windows predicts `length` of them, the last one the rest, and
begins with the token that the previous window predicts last:

    tokens     a b c d e f g h i j k
    epoch 0    [a b c d)[e f g h)[i j)          predict  b c d e | f g h i | j k
    another    [d e f g)[h i j)+[a)[b c)        predict  e f g h | i j k  b | c d

Later epochs rotate the text, so that a token does not have the same position in its window every time. Windows keep
their lengths; the one that reaches the end continues with the beginning, which is a segment of its own there. A text
that fits one window is not rotated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from regard.data.columns import Column
from regard.data.store import TokenStore

GOLDEN_RATIO = (5**0.5 - 1) / 2
"""The fractional parts of its multiples are evenly spread (a low-discrepancy sequence)."""


class WindowSegments(NamedTuple):
    """The segments of windows: the window of each, the index of its first token in the column, and its predictions."""

    owner: Int[np.ndarray, " parts"]
    starts: Int[np.ndarray, " parts"]
    lengths: Int[np.ndarray, " parts"]


def cut_windows(store: TokenStore, column: str, length: int) -> LanguageModelWindows:
    """Return the windows of a column, cached in its store: every batch needs them."""
    windows = store.cache.get((column, length))
    if windows is None:
        windows = store.cache[column, length] = LanguageModelWindows(store[column], length)
    return windows


class LanguageModelWindows:
    """All windows of a column of texts, text by text; `lengths` says how many tokens each predicts."""

    def __init__(self, column: Column, length: int) -> None:
        self.column, self.length = column, length
        to_predict = column.lengths - 1
        n_windows = -(-to_predict // length)
        self._first_windows = np.cumsum(n_windows, dtype=np.int64) - n_windows
        self.lengths = np.full(int(n_windows.sum()), length, dtype=np.int32)
        has_windows = n_windows > 0
        last = (self._first_windows + n_windows - 1)[has_windows]
        self.lengths[last] = (to_predict - (n_windows - 1) * length)[has_windows]

    def segments(self, windows: Int[np.ndarray, " windows"], epoch: int) -> WindowSegments:
        """Return one segment of each window, or two if it continues with the beginning of its text."""
        texts = np.searchsorted(self._first_windows, windows, side="right") - 1
        n_text, n_window = self.column.lengths[texts].astype(np.int64) - 1, self.lengths[windows].astype(np.int64)
        starts, offset = (windows - self._first_windows[texts]) * self.length, self.column.offsets[texts]
        rotation = (epoch * GOLDEN_RATIO % 1 * n_text).astype(np.int64)
        begin = np.where(n_window < n_text, (starts + rotation) % n_text, 0)
        n_first = np.minimum(n_window, n_text - begin)
        starts = np.stack((offset + begin, offset), 1).ravel()
        lengths = np.stack((n_first, n_window - n_first), 1).ravel()
        is_used = lengths > 0
        return WindowSegments(np.repeat(np.arange(len(windows)), 2)[is_used], starts[is_used], lengths[is_used])
