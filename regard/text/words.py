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

MARK = "\u0300"
LETTERS = rf"{MARK}*\w[\w{MARK}]*"
RUNNING = re.compile(rf"{LETTERS}(?:(?:[.,'’\-/&]|(?<=\d):(?=\d)){LETTERS})*|[^\w\s]{MARK}*")
SPACED = re.compile(r"\S+")


class Span(NamedTuple):
    """From which character of a text on a word stands, and up to which."""

    start: int
    end: int


Words = Callable[[str], list[Span]]
"""A way to find the words of a text."""


def running(text: str) -> list[Span]:
    """Letters and digits, with single signs between them, or one sign; each with the marks that belong to it."""
    return [Span(*match.span()) for match in RUNNING.finditer(text.translate(_MARKED))]


def spaced(text: str) -> list[Span]:
    """What stands between spaces."""
    return [Span(*match.span()) for match in SPACED.finditer(text)]


class _Marked(dict[int, int]):
    """Every mark and joiner as one and the same mark, for Python's patterns have no name for all of them."""

    def __missing__(self, code: int) -> int:
        joined = category(chr(code)).startswith("M") or chr(code) in JOINERS
        self[code] = ord(MARK) if joined else code
        return self[code]


_MARKED = _Marked()
