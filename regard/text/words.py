"""Word segmentation of plain text into character spans, for tasks that label words.

No word is split before a combining mark or a joiner: a vowel sign, a separate accent, a zero-width joiner. Called by
the tagging task; tokenizers pre-tokenize in their own way (tokenizer_training.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from unicodedata import category

JOINERS = "\u00ad\u200c\u200d\u2060"
"""Invisible characters inside words: the soft hyphen, and zero-width joiners and non-joiners."""

COMBINING_MARK = "\u0300"
LETTERS_PATTERN = rf"{COMBINING_MARK}*\w[\w{COMBINING_MARK}]*"
WORD_REGEX = re.compile(
    rf"{LETTERS_PATTERN}(?:(?:[.,'’\-/&]|(?<=\d):(?=\d)){LETTERS_PATTERN})*|[^\w\s]{COMBINING_MARK}*"
)
WHITESPACE_SPLIT_REGEX = re.compile(r"\S+")


class Span(NamedTuple):
    """The first character of a word in a text, and the one after its last."""

    start: int
    end: int


class TextWord(NamedTuple):
    """A word of a text: its form, its characters, and those of the token in which it is written.

    Most tokens are one word. The words of a token that is several (``don't``: ``do`` and ``n't``) have the characters
    that they are written with or, where they are not spelled (French ``du``: ``de`` and ``le``), all of those.
    """

    form: str
    start: int
    end: int
    token: Span


WordSplitter = Callable[[str], list[TextWord]]
"""A function that returns the words of a text."""


def split_words(text: str) -> list[TextWord]:
    """Return the words that `find_words` finds."""
    return [TextWord(text[span.start : span.end], *span, span) for span in find_words(text)]


def split_at_whitespace(text: str) -> list[TextWord]:
    """Return the words separated by white space."""
    return [TextWord(text[span.start : span.end], *span, span) for span in find_whitespace_words(text)]


def find_words(text: str) -> list[Span]:
    """Return runs of letters and digits, with single punctuation marks inside, and all other characters one by one."""
    return [Span(*match.span()) for match in WORD_REGEX.finditer(text.translate(_COMBINING_MARK_TABLE))]


def find_whitespace_words(text: str) -> list[Span]:
    """Return the words separated by white space."""
    return [Span(*match.span()) for match in WHITESPACE_SPLIT_REGEX.finditer(text)]


class _CombiningMarkTable(dict[int, int]):
    """Maps every mark and joiner to one mark: Python's re has no class for them."""

    def __missing__(self, code: int) -> int:
        is_mark = category(chr(code)).startswith("M") or chr(code) in JOINERS
        self[code] = ord(COMBINING_MARK) if is_mark else code
        return self[code]


_COMBINING_MARK_TABLE = _CombiningMarkTable()
