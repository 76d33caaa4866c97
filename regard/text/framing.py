"""A text, or a pair of texts, between the special tokens an encoder expects (SPEC 5.1).

    [CLS] a_1 .. a_n [SEP] b_1 .. b_m [SEP]          BERT and ours
    <s> a_1 .. a_n </s> </s> b_1 .. b_m </s>         RoBERTa, XLM-R: both texts are one part

Called by every task on an encoder; long texts are cut into overlapping windows here (SPEC 6.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from regard.text.tokenizer import ROLES, Tokenizer

Ids = Sequence[int]


class Framed(NamedTuple):
    """The ids of an input, special ones included, how many come before its second part, and where each part stands."""

    ids: list[int]
    turn: int
    first: int
    second: int


@dataclass(frozen=True)
class Frame:
    """The special ids around texts."""

    before: int
    between: tuple[int, ...]
    after: int
    pad: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
        """That of a vocabulary, known by what it calls its tokens."""
        first, parting = tokenizer.special("first"), tokenizer.special("parting")
        doubled = tokenizer.pieces([first])[0] != ROLES["first"][0]
        return cls(first, (parting,) * (2 if doubled else 1), parting, tokenizer.special("pad"))

    def extra(self, paired: bool) -> int:
        """Special ids of an input."""
        return 2 + paired * len(self.between)

    def around(self, first: Ids, second: Ids | None = None) -> Framed:
        """One text, or two."""
        if second is None:
            return Framed([self.before, *first, self.after], len(first) + 2, 1, len(first) + 2)
        start = 1 + len(first) + len(self.between)
        ids = [self.before, *first, *self.between, *second, self.after]
        return Framed(ids, len(first) + 2 if len(self.between) == 1 else len(ids), 1, start)


class Window(NamedTuple):
    """A stretch of a long text."""

    start: int
    end: int


def windows(n_tokens: int, most: int) -> list[Window]:
    """The stretches of at most so many tokens that cover a text, a quarter of each in common with the next.

    A token in common counts where it is further from the edge; `nearest` says where that is.
    """
    if n_tokens <= most:
        return [Window(0, n_tokens)]
    step = max(1, most - most // 4)
    starts = [*range(0, n_tokens - most, step), n_tokens - most]
    return [Window(start, start + most) for start in starts]


def nearest(found: Sequence[Window], token: int) -> int:
    """The window that has most of the text around a token on its shorter side; an edge of the text does not count."""
    last = found[-1].end

    def room(window: Window) -> int:
        left = token - window.start if window.start else last
        right = window.end - 1 - token if window.end < last else last
        return min(left, right) if window.start <= token < window.end else -1

    return max(range(len(found)), key=lambda number: room(found[number]))
