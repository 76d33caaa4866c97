"""The text of tokens that come one by one, as soon as it is certain.

A token may end inside a character, and text may turn out to begin a stop string: such text waits. What is given out
and what `end` adds are together the text of all tokens, up to the stop string that is whole first (the longest of
those that end together), however the text was cut into tokens. Called by the task that writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"
"""What bytes that are no whole character become."""

CONTEXT_TOKENS = 8
"""Tokens of what stands before that are spelled again, for vocabularies that write a first piece in another way."""


class IncrementalDetokenizer:
    """What some tokens behind others spell."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = (), stop_strings: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop_strings = tokenizer, stop_strings
        self._window_ids = list(prompt_ids[-CONTEXT_TOKENS:])
        self._decoded, self._pending = "", ""
        self._mark_decoded()
        self.text = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """One more token; gives the text that has become certain."""
        self._window_ids.append(token)
        found = self._tokenizer.decode(self._window_ids)
        if found.endswith(REPLACEMENT_CHARACTER):
            return ""
        new = found[len(self._decoded) :]
        del self._window_ids[: self._n_decoded]
        self._mark_decoded()
        return self._emit(new)

    def end(self, *tokens: int) -> str:
        """Nothing comes behind these tokens; gives the text that was still waiting, and theirs."""
        self._window_ids.extend(tokens)
        spelled = self._tokenizer.decode(self._window_ids)
        certain = self._emit(spelled[len(self._decoded) :])
        self._decoded = spelled
        rest, self._pending = self._pending, ""
        self.text += rest
        return certain + rest

    def _mark_decoded(self) -> None:
        """The tokens there are spell text that is given out already."""
        self._decoded, self._n_decoded = self._tokenizer.decode(self._window_ids), len(self._window_ids)

    def _emit(self, new: str) -> str:
        if self.stopped:
            return ""
        found = self._pending + new
        whole = [(place + len(stop), place) for stop in self._stop_strings if (place := found.find(stop)) >= 0]
        self.stopped = bool(whole)
        certain = min(whole)[1] if whole else len(found) - self._partial_stop_length(found)
        self._pending = "" if whole else found[certain:]
        self.text += found[:certain]
        return found[:certain]

    def _partial_stop_length(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stop_strings), default=0))
        ends = (
            length for length in range(longest, 0, -1) if any(s.startswith(text[-length:]) for s in self._stop_strings)
        )
        return next(ends, 0)
