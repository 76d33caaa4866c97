"""Limits on the regular expressions of a tokenizer.json, which are matched by backtracking.

Backtracking takes exponential time where a repeated group can match one text in several ways, as ``(a+)+`` does, or
where many parts are optional, as in ``a?a?a?...aaa``; and counts within counts, as ``(a{999}){999}``, multiply in
memory. So a group that is repeated must not hold another repetition or an alternative, though ``(?:...)?`` may and
``(?:\\d{3})+`` may hold an exact count, and the choices are counted. Polynomial time remains: the library gives up,
by a panic, after ten million steps of a match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

from regard.ranges import show_value

MAX_PATTERN_CHARACTERS = 10_000
"""Characters of a pattern, at most."""

MAX_CHOICES = 8
"""Repetitions, options and groups of alternatives in an alternative of a pattern, at most; published ones have 5."""

WORD_PATTERN = r"[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*|[^\s\p{L}\p{M}\p{N}_]"
"""The pattern of word_tokenizer.py: a repetition of repetitions, but one that can match a text in one way only."""

_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:[:=!>]|<[=!]|<\w+>|[im-]*:)|(?!\?)))"
    r"|(?P<close>\))"
    r"|(?P<count>\{\d{1,4}(?P<comma>,\d{0,4})?\}\??)"
    r"|(?P<repeat>[*+][?+]?)"
    r"|(?P<option>\?[?+]?)"
    r"|(?P<either>\|)"
    r"|(?P<atom>\[(?:\\.|\[(?:\\.|[^\]\\\[])+\]|[^\]\\\[])+\]"  # a set of characters, perhaps with another inside
    r"|\\[pP]\{\^?\w+\}|\\x\{\w+\}|\\[^gkpPxQ]|\(\?[im-]+\)|[^\\\[\](){}?*+|])",
    re.DOTALL,
)


class _Choice(IntEnum):
    """In how many ways a part of a pattern may match."""

    ONE = 0
    COUNTED = 1
    """It holds an exact count."""
    MANY = 2


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a pattern that may take exponential time or memory, or that is not understood."""
    if pattern == WORD_PATTERN:
        return
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"a pattern of {len(pattern):,} characters, at most {MAX_PATTERN_CHARACTERS:,}")
    groups, last, n_choices = [_Choice.ONE], _Choice.ONE, 0
    for token in _split_pattern(pattern):
        if token["open"]:
            groups.append(_Choice.ONE)
            continue
        last = groups.pop() if token["close"] else _extend(pattern, token, last)
        if not groups:
            raise ValueError(f"the pattern {show_value(pattern)} closes a group that is not open")
        if token["either"] and len(groups) == 1:
            n_choices = 0
        elif last == _Choice.MANY and not token["close"] and not (token["either"] and groups[-1] == last):
            n_choices += 1
        if n_choices > MAX_CHOICES:
            raise ValueError(f"the pattern {show_value(pattern)} has more than {MAX_CHOICES} choices in an alternative")
        groups[-1] = max(groups[-1], last)


def _split_pattern(pattern: str) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            unknown = show_value(pattern[position : position + 9])
            raise ValueError(f"the pattern {show_value(pattern)} has a part that is not supported: {unknown}")
        yield token
        position = token.end()


def _extend(pattern: str, token: re.Match[str], last: _Choice) -> _Choice:
    """Return in how many ways the part before a repetition matches with it; refuse repetitions of repetitions."""
    limit = _Choice.ONE if token["count"] else _Choice.COUNTED
    if (token["count"] or token["repeat"]) and last > limit:
        raise ValueError(
            f"the pattern {show_value(pattern)} repeats a repetition or an alternative, which may never end"
        )
    if token["atom"]:
        return _Choice.ONE
    return _Choice.COUNTED if token["count"] and not token["comma"] else _Choice.MANY
