"""Incremental detokenization for streaming: the text of tokens that are generated one by one.

A token may end inside a character, and text may turn out to begin a stop string: such text is held back. The emitted
text and what `end` adds are together the text of all tokens up to the stop string that completes first (the longest of
those that end together), however the text was split into tokens. Called by text generation.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"
"""The replacement of an incomplete character."""

CONTEXT_TOKENS = 8
"""Preceding tokens that are decoded again, for tokenizers that decode a first token differently."""


class IncrementalDetokenizer:
    """The text of tokens after a prompt, decoded token by token."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = (), stop_strings: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop_strings = tokenizer, stop_strings
        self._window_ids = list(prompt_ids[-CONTEXT_TOKENS:])
        self._decoded, self._pending = "", ""
        self._mark_decoded()
        self.text = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """Add a token; return the text that has become final."""
        self._window_ids.append(token)
        decoded = self._tokenizer.decode(self._window_ids)
        if decoded.endswith(REPLACEMENT_CHARACTER):
            return ""
        new = decoded[len(self._decoded) :]
        del self._window_ids[: self._n_decoded]
        self._mark_decoded()
        return self._emit(new)

    def end(self, *tokens: int) -> str:
        """Add the last tokens; return their text and the text held back."""
        self._window_ids.extend(tokens)
        decoded = self._tokenizer.decode(self._window_ids)
        final = self._emit(decoded[len(self._decoded) :])
        self._decoded = decoded
        rest, self._pending = self._pending, ""
        self.text += rest
        return final + rest

    def _mark_decoded(self) -> None:
        """Mark the text of the tokens so far as emitted."""
        self._decoded, self._n_decoded = self._tokenizer.decode(self._window_ids), len(self._window_ids)

    def _emit(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._pending + new
        stops = [(start + len(stop), start) for stop in self._stop_strings if (start := text.find(stop)) >= 0]
        self.stopped = bool(stops)
        n_final = min(stops)[1] if stops else len(text) - self._partial_stop_length(text)
        self._pending = "" if stops else text[n_final:]
        self.text += text[:n_final]
        return text[:n_final]

    def _partial_stop_length(self, text: str) -> int:
        """Return the length of the longest suffix of a text that is a prefix of a stop string."""
        longest = min(len(text), max(map(len, self._stop_strings), default=0))
        lengths = (
            length for length in range(longest, 0, -1) if any(s.startswith(text[-length:]) for s in self._stop_strings)
        )
        return next(lengths, 0)
