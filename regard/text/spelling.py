"""The text of tokens that come one by one, as soon as it is certain.

A token may end inside a character, and text may turn out to begin a stop string: such text waits. What is given out
and what `end` adds are together the text of all tokens, up to the stop string that is whole first (the longest of
those that end together), however the text was cut into tokens. Called by the task that writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

HALF = "\ufffd"
"""What bytes that are no whole character become."""

BEFORE = 8
"""Tokens of what stands before that are spelled again, for vocabularies that write a first piece in another way."""


class Spelling:
    """What some tokens behind others spell."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._ids = list(before[-BEFORE:])
        self._spelled, self._waiting = "", ""
        self._settle()
        self.text = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """One more token; gives the text that has become certain."""
        self._ids.append(token)
        found = self._tokenizer.decode(self._ids)
        if found.endswith(HALF):
            return ""
        new = found[len(self._spelled) :]
        del self._ids[: self._n_spelled]
        self._settle()
        return self._give(new)

    def end(self, *tokens: int) -> str:
        """Nothing comes behind these tokens; gives the text that was still waiting, and theirs."""
        self._ids.extend(tokens)
        spelled = self._tokenizer.decode(self._ids)
        certain = self._give(spelled[len(self._spelled) :])
        self._spelled = spelled
        rest, self._waiting = self._waiting, ""
        self.text += rest
        return certain + rest

    def _settle(self) -> None:
        """The tokens there are spell text that is given out already."""
        self._spelled, self._n_spelled = self._tokenizer.decode(self._ids), len(self._ids)

    def _give(self, new: str) -> str:
        if self.stopped:
            return ""
        found = self._waiting + new
        whole = [(place + len(stop), place) for stop in self._stops if (place := found.find(stop)) >= 0]
        self.stopped = bool(whole)
        certain = min(whole)[1] if whole else len(found) - self._begun(found)
        self._waiting = "" if whole else found[certain:]
        self.text += found[:certain]
        return found[:certain]

    def _begun(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stops), default=0))
        ends = (length for length in range(longest, 0, -1) if any(s.startswith(text[-length:]) for s in self._stops))
        return next(ends, 0)
