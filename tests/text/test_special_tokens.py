"""Special tokens around texts, and overlapping windows of long ones."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from encoders import vocabulary
from hypothesis import given

from regard.text.special_tokens import SpecialTokenTemplate, max_context_window, split_into_windows

FRAME = SpecialTokenTemplate(cls_id=1, pair_separator_ids=(2,), sep_id=2, pad_id=0)
DOUBLED = SpecialTokenTemplate(cls_id=1, pair_separator_ids=(2, 2), sep_id=2, pad_id=0)


def test_special_tokens_of_a_text_and_of_a_pair() -> None:
    assert FRAME.wrap([7, 8]) == ([1, 7, 8, 2], 4, 1, 4)
    assert FRAME.wrap([7, 8], [9]) == ([1, 7, 8, 2, 9, 2], 4, 1, 4)
    assert DOUBLED.wrap([7], [9]) == ([1, 7, 2, 2, 9, 2], 6, 1, 4)  # one token type for both texts
    assert (
        FRAME.n_special_tokens(is_pair=False),
        FRAME.n_special_tokens(is_pair=True),
        DOUBLED.n_special_tokens(is_pair=True),
    ) == (2, 3, 4)


def test_template_follows_from_the_tokenizer() -> None:
    words = vocabulary()
    template = SpecialTokenTemplate.from_tokenizer(words)
    assert words.display_tokens([template.cls_id, *template.pair_separator_ids, template.sep_id, template.pad_id]) == [
        "[CLS]",
        "[SEP]",
        "[SEP]",
        "[PAD]",
    ]


@given(st.integers(0, 300), st.integers(1, 60))
def test_windows_cover_a_text_and_each_token_has_its_maximal_context(n_tokens: int, max_length: int) -> None:
    windows = split_into_windows(n_tokens, max_length)
    assert all(0 < end - start <= max_length or n_tokens == 0 for start, end in windows)
    assert (windows[0].start, windows[-1].end) == (0, n_tokens)
    assert all(after.start <= before.end for before, after in pairwise(windows))
    for token in range(n_tokens):
        chosen = windows[max_context_window(windows, token)]
        assert chosen.start <= token < chosen.end

        def context(start: int, end: int, token: int = token) -> int:
            left = token - start if start else n_tokens
            right = end - 1 - token if end < n_tokens else n_tokens
            return min(left, right)

        assert context(*chosen) == max(context(*each) for each in windows if each.start <= token < each.end)
