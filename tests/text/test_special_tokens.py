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
    assert DOUBLED.wrap([7], [9]) == ([1, 7, 2, 2, 9, 2], 6, 1, 4)  # it tells no parts apart
    assert (
        FRAME.n_special_tokens(is_pair=False),
        FRAME.n_special_tokens(is_pair=True),
        DOUBLED.n_special_tokens(is_pair=True),
    ) == (2, 3, 4)


def test_template_follows_from_the_tokenizer() -> None:
    words = vocabulary()
    frame = SpecialTokenTemplate.from_tokenizer(words)
    assert words.display_tokens([frame.cls_id, *frame.pair_separator_ids, frame.sep_id, frame.pad_id]) == [
        "[CLS]",
        "[SEP]",
        "[SEP]",
        "[PAD]",
    ]


@given(st.integers(0, 300), st.integers(1, 60))
def test_windows_cover_a_text_and_each_token_has_its_maximal_context(n_tokens: int, most: int) -> None:
    found = split_into_windows(n_tokens, most)
    assert all(0 < end - start <= most or n_tokens == 0 for start, end in found)
    assert (found[0].start, found[-1].end) == (0, n_tokens)
    assert all(after.start <= before.end for before, after in pairwise(found))
    for token in range(n_tokens):
        chosen = found[max_context_window(found, token)]
        assert chosen.start <= token < chosen.end

        def around(start: int, end: int, token: int = token) -> int:
            left = token - start if start else n_tokens
            right = end - 1 - token if end < n_tokens else n_tokens
            return min(left, right)

        assert around(*chosen) == max(around(*each) for each in found if each.start <= token < each.end)
