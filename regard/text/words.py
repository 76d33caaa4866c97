"""The words of plain text, as places in it: for tasks whose labels stand on words, where nobody parted them.

No word is cut at a sign that belongs to the letter before it: a vowel sign, an accent written by itself, a joiner.
Called by the tagging task; vocabularies cut words into pieces in their own way (vocabulary.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from unicodedata import category

JOINERS = "\u00ad\u200c\u200d\u2060"
"""Characters that nobody sees, inside words: a soft hyphen, and what keeps letters apart or together."""

COMBINING_MARK = "\u0300"
LETTERS_PATTERN = rf"{COMBINING_MARK}*\w[\w{COMBINING_MARK}]*"
WORD_REGEX = re.compile(
    rf"{LETTERS_PATTERN}(?:(?:[.,'’\-/&]|(?<=\d):(?=\d)){LETTERS_PATTERN})*|[^\w\s]{COMBINING_MARK}*"
)
WHITESPACE_SPLIT_REGEX = re.compile(r"\S+")


class Span(NamedTuple):
    """From which character of a text on a word stands, and up to which."""

    start: int
    end: int


WordSplitter = Callable[[str], list[Span]]
"""A way to find the words of a text."""


def find_words(text: str) -> list[Span]:
    """Letters and digits, with single signs between them, or one sign; each with the marks that belong to it."""
    return [Span(*match.span()) for match in WORD_REGEX.finditer(text.translate(_COMBINING_MARK_TABLE))]


def find_whitespace_words(text: str) -> list[Span]:
    """What stands between spaces."""
    return [Span(*match.span()) for match in WHITESPACE_SPLIT_REGEX.finditer(text)]


class _CombiningMarkTable(dict[int, int]):
    """Every mark and joiner as one and the same mark, for Python's patterns have no name for all of them."""

    def __missing__(self, code: int) -> int:
        joined = category(chr(code)).startswith("M") or chr(code) in JOINERS
        self[code] = ord(COMBINING_MARK) if joined else code
        return self[code]


_COMBINING_MARK_TABLE = _CombiningMarkTable()
