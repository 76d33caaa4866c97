"""A text, or a pair of texts, between the special tokens an encoder expects (SPEC 5.1).

    [CLS] a_1 .. a_n [SEP] b_1 .. b_m [SEP]          BERT and ours
    <s> a_1 .. a_n </s> </s> b_1 .. b_m </s>         RoBERTa, XLM-R: both texts are one part

Called by every task on an encoder; long texts are cut into overlapping windows here (SPEC 6.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.text.tokenizer import SPECIAL_TOKEN_ROLES, Tokenizer

TokenIds = Sequence[int]


class EncodedInput(NamedTuple):
    """The ids of an input, special ones included, how many come before its second part, and where each part stands."""

    ids: list[int]
    token_type_boundary: int
    first_start: int
    second_start: int


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special ids around texts."""

    cls_id: int
    pair_separator_ids: tuple[int, ...]
    sep_id: int
    pad_id: int

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> SpecialTokenTemplate:
        """That of a vocabulary, known by what it calls its tokens."""
        cls_id, sep_id = tokenizer.special_id("cls"), tokenizer.special_id("sep")
        is_bert = tokenizer.display_tokens([cls_id])[0] == SPECIAL_TOKEN_ROLES["cls"][0]
        return cls(cls_id, (sep_id,) * (1 if is_bert else 2), sep_id, tokenizer.special_id("pad"))

    def n_special_tokens(self, is_pair: bool) -> int:
        """Special ids of an input."""
        return 2 + is_pair * len(self.pair_separator_ids)

    def wrap(self, first: TokenIds, second: TokenIds | None = None) -> EncodedInput:
        """One text, or two."""
        if second is None:
            return EncodedInput([self.cls_id, *first, self.sep_id], len(first) + 2, 1, len(first) + 2)
        start = 1 + len(first) + len(self.pair_separator_ids)
        ids = [self.cls_id, *first, *self.pair_separator_ids, *second, self.sep_id]
        return EncodedInput(ids, len(first) + 2 if len(self.pair_separator_ids) == 1 else len(ids), 1, start)


class TextWindow(NamedTuple):
    """A stretch of a long text."""

    start: int
    end: int


def split_into_windows(n_tokens: int, max_length: int) -> list[TextWindow]:
    """The stretches of at most so many tokens that cover a text, a quarter of each in common with the next.

    A token in common counts where it is further from the edge; `nearest` says where that is.
    """
    if n_tokens <= max_length:
        return [TextWindow(0, n_tokens)]
    step = max(1, max_length - max_length // 4)
    starts = [*range(0, n_tokens - max_length, step), n_tokens - max_length]
    return [TextWindow(start, start + max_length) for start in starts]


def max_context_window(text_windows: Sequence[TextWindow], token: int) -> int:
    """The window that has most of the text around a token on its shorter side; an edge of the text does not count."""
    last = text_windows[-1].end

    def room(window: TextWindow) -> int:
        left = token - window.start if window.start else last
        right = window.end - 1 - token if window.end < last else last
        return min(left, right) if window.start <= token < window.end else -1

    return max(range(len(text_windows)), key=lambda number: room(text_windows[number]))
