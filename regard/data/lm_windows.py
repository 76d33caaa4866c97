"""Long texts cut into windows, at other places in each epoch.

A text of n + 1 tokens has n to predict. Each of its windows predicts `length` of them, the last one what is left, and
begins with the token that the one before predicts last:

    tokens     a b c d e f g h i j k
    epoch 0    [a b c d)[e f g h)[i j)          predict  b c d e | f g h i | j k
    another    [d e f g)[h i j)+[a)[b c)        predict  e f g h | i j k  b | c d

Later epochs turn the text, so that no token stands at the same place of a window again and again. Windows keep their
lengths; the one that reaches the end goes on with the beginning, which is a text by itself there. A text that fits one
window stays whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from regard.data.columns import Column
from regard.data.packing import concatenate_ranges
from regard.data.store import TokenStore

GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Multiples of it, without their whole part, lie far apart from each other."""


class WindowSegments(NamedTuple):
    """What windows consist of: whose part each is, where in the column its first token is, and how many it predicts."""

    owner: Int[np.ndarray, " parts"]
    starts: Int[np.ndarray, " parts"]
    lengths: Int[np.ndarray, " parts"]


def cut_windows(store: TokenStore, column: str, length: int) -> LanguageModelWindows:
    """The windows of a column, which its store keeps: they are asked for with every batch."""
    found = store.window_cache.get((column, length))
    if found is None:
        found = store.window_cache[column, length] = LanguageModelWindows(store[column], length)
    return found


class LanguageModelWindows:
    """All windows of a column of texts, each text's one after another.

    Of each: how many tokens it predicts (`spans`), and its text (`of_text`), where that lies in the column (`offsets`),
    and where in the text it begins (`first`), in the first epoch.
    """

    def __init__(self, column: Column, length: int) -> None:
        self.column = column
        to_predict = column.lengths.astype(np.int64) - 1
        n_windows = -(-to_predict // length)
        self.text_lengths = np.repeat(to_predict, n_windows)
        self.starts = concatenate_ranges(np.zeros_like(n_windows), n_windows) * length
        self.lengths = np.minimum(length, self.text_lengths - self.starts)
        self.text_offsets = np.repeat(column.offsets[:-1], n_windows)

    def segments(self, windows: Int[np.ndarray, " windows"], epoch: int) -> WindowSegments:
        """One part of each of these windows, or two where it goes on with the beginning of its text."""
        of_text, span, offset = self.text_lengths[windows], self.lengths[windows], self.text_offsets[windows]
        turned = (epoch * GOLDEN_RATIO % 1 * of_text).astype(np.int64)
        begin = np.where(span < of_text, (self.starts[windows] + turned) % of_text, 0)
        upto = np.minimum(span, of_text - begin)
        starts, spans = np.stack((offset + begin, offset), 1).ravel(), np.stack((upto, span - upto), 1).ravel()
        there = spans > 0
        return WindowSegments(np.repeat(np.arange(len(windows)), 2)[there], starts[there], spans[there])
