"""What a vocabulary does not know: characters that its text never had (text/vocabulary.py, "characters").

A text may come in any number of parts; what is said of it is said once, and counts all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.progress import warn
from regard.text.tokenizer import Tokenizer

NAMED = 5
"""Unknown characters that a warning names."""


class Unknown:
    """Encodes texts and counts what is unknown of them; where every character is a token, remembers some of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.id = tokenizer, tokenizer.find("unknown")
        self.n_unknown = self.n_tokens = 0
        self.characters: dict[str, None] = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts."""
        found = self.tokenizer.encode_batch(texts)
        self.n_tokens += sum(map(len, found))
        for text, ids in zip(texts, found, strict=True):
            if self.id is not None and (count := ids.count(self.id)):
                self.n_unknown += count
                self._remember(text, ids)
        return found

    def _remember(self, text: str, ids: Sequence[int]) -> None:
        if len(ids) == len(text) and len(self.characters) <= NAMED:
            unknown = (character for character, index in zip(text, ids, strict=True) if index == self.id)
            self.characters |= dict.fromkeys(unknown)

    def warn(self, so: str = "") -> None:
        """Say what was unknown, if anything was, and what follows from it."""
        named = ": " + " ".join(map(repr, list(self.characters)[:NAMED])) if self.characters else ""
        more = " ..." if len(self.characters) > NAMED else ""
        warn_of_unknown(self.n_unknown, self.n_tokens, named + more + so)


def warn_of_unknown(n_unknown: int, n_tokens: int, so: str = "", of: str = "") -> None:
    """One line that counts them."""
    if n_unknown:
        warn(f"{n_unknown:,} of {n_tokens:,} tokens{of} are unknown to the vocabulary, which never saw them{so}")
