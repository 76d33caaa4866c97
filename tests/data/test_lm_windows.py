"""Language-model windows: every token once in every epoch, at other offsets in each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.columns import Column
from regard.data.lm_windows import LanguageModelWindows

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def texts(lengths: list[int]) -> list[list[int]]:
    """Return texts in which all tokens differ."""
    starts = np.cumsum([0, *lengths])
    return [list(range(start, start + length)) for start, length in zip(starts.tolist(), lengths, strict=False)]


def read(windows: LanguageModelWindows, epoch: int) -> list[list[list[int]]]:
    """Return the tokens of each segment of each window, with the token after them."""
    owner, starts, spans = windows.segments(np.arange(len(windows.lengths)), epoch)
    segments: list[list[list[int]]] = [[] for _ in windows.lengths]
    for window, start, span in zip(owner.tolist(), starts.tolist(), spans.tolist(), strict=True):
        segments[window].append(windows.column.ids[start : start + span + 1].tolist())
    return segments


@given(LENGTHS, st.integers(1, 20), st.integers(0, 50))
def test_every_token_is_predicted_once_in_every_epoch(lengths: list[int], length: int, epoch: int) -> None:
    """Windows also keep their lengths."""
    sentences = texts(lengths)
    windows = LanguageModelWindows(Column.from_sentences(sentences), length)
    parts = read(windows, epoch)
    predicted = sorted(token for window in parts for part in window for token in part[1:])
    assert predicted == sorted(token for text in sentences for token in text[1:])
    assert [sum(len(part) - 1 for part in window) for window in parts] == windows.lengths.tolist()
    assert max(windows.lengths.tolist(), default=0) <= length


@given(LENGTHS, st.integers(1, 20), st.integers(0, 50))
def test_segments_are_contiguous_parts_of_one_text(lengths: list[int], length: int, epoch: int) -> None:
    sentences = texts(lengths)
    for window in read(LanguageModelWindows(Column.from_sentences(sentences), length), epoch):
        for part in window:
            (text,) = (text for text in sentences if part[0] in text)
            at = text.index(part[0])
            assert part == text[at : at + len(part)]


def test_first_epoch_is_not_rotated() -> None:
    assert read(LanguageModelWindows(Column.from_sentences([list(range(11))]), 4), 0) == [
        [[0, 1, 2, 3, 4]],
        [[4, 5, 6, 7, 8]],
        [[8, 9, 10]],
    ]


def test_text_that_fits_one_window_is_not_split() -> None:
    windows = LanguageModelWindows(Column.from_sentences(texts([9, 5])), 8)
    assert all(read(windows, epoch) == read(windows, 0) for epoch in range(9))


@pytest.mark.parametrize("length", [16, 64])
def test_later_epochs_split_at_other_offsets(length: int) -> None:
    """Any two of 12 epochs share only a few offsets."""
    windows = LanguageModelWindows(Column.from_sentences(texts([5000])), length)
    cuts = [{part[0] for window in read(windows, epoch) for part in window} for epoch in range(12)]
    shared = [len(one & other) for i, one in enumerate(cuts) for other in cuts[:i]]
    assert np.mean(shared) < 0.2 * 5000 / length
