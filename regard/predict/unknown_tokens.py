"""Counts of unknown tokens: characters absent from the vocabulary (text/tokenizer_training.py, "characters").

A text may arrive in any number of parts; a single warning counts the unknown tokens of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.progress import warn
from regard.text.tokenizer import Tokenizer

MAX_NAMED_CHARACTERS = 5
"""Unknown characters that a warning names."""


class UnknownTokenCounter:
    """Encodes texts and counts their unknown tokens; if every character is a token, also collects some of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.unknown_id = tokenizer, tokenizer.find_special_id("unknown")
        self.n_unknown = self.n_tokens = 0
        self.characters: dict[str, None] = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts."""
        encoded = self.tokenizer.encode_batch(texts)
        self.n_tokens += sum(map(len, encoded))
        for text, ids in zip(texts, encoded, strict=True):
            if self.unknown_id is not None and (count := ids.count(self.unknown_id)):
                self.n_unknown += count
                self._collect_characters(text, ids)
        return encoded

    def _collect_characters(self, text: str, ids: Sequence[int]) -> None:
        if len(ids) == len(text) and len(self.characters) <= MAX_NAMED_CHARACTERS:
            unknown = (character for character, index in zip(text, ids, strict=True) if index == self.unknown_id)
            self.characters |= dict.fromkeys(unknown)

    def warn(self, detail: str = "") -> None:
        """Warn of unknown tokens, if there were any, and of the consequence."""
        named = ": " + " ".join(map(repr, list(self.characters)[:MAX_NAMED_CHARACTERS])) if self.characters else ""
        more = " ..." if len(self.characters) > MAX_NAMED_CHARACTERS else ""
        warn_about_unknown_tokens(self.n_unknown, self.n_tokens, named + more + detail)


def warn_about_unknown_tokens(n_unknown: int, n_tokens: int, detail: str = "", scope: str = "") -> None:
    """Warn in one line with the number of unknown tokens."""
    if n_unknown:
        warn(f"{n_unknown:,} of {n_tokens:,} tokens{scope} are unknown to the vocabulary, which never saw them{detail}")
