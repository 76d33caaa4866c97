"""Running text with its words in an annotated corpus: tokens as written, each of one word or several.

CoNLL-U has both: the text of a sentence, in a comment or in the marks of missing spaces, and its words. Built by
tagged.py; segmenter_training.py learns word segmentation from it, segmentation_scores.py scores words that were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.text.words import Span, TextWord


class SurfaceToken(NamedTuple):
    """A token as it is written, the forms of its words, and whether a space follows it."""

    surface: str
    forms: tuple[str, ...]
    space_after: bool = True


class RunningText(NamedTuple):
    """A text and its tokens: their characters, and the forms of their words."""

    text: str
    tokens: tuple[tuple[Span, tuple[str, ...]], ...]

    def words(self) -> list[TextWord]:
        """Return the words of all tokens."""
        return [word for span, forms in self.tokens for word in words_of_token(self.text, span, forms)]


def words_of_token(text: str, token: Span, forms: Sequence[str]) -> list[TextWord]:
    """Return the words of a token; those that are written as parts of it have their own characters."""
    if len(forms) == 1:
        return [TextWord(forms[0], *token, token)]
    if not is_spelled(text[token.start : token.end], forms):
        return [TextWord(form, *token, token) for form in forms]
    words, start = [], token.start
    for form in forms:
        words.append(TextWord(form, start, start + len(form), token))
        start += len(form)
    return words


def is_spelled(surface: str, forms: Sequence[str]) -> bool:
    """Return True if a token is one word, or is written as its words are, but for case."""
    return len(forms) == 1 or "".join(forms).lower() == surface.lower()


def join_tokens(tokens: Iterable[SurfaceToken]) -> str:
    """Return the text that tokens and the marks of missing spaces make."""
    return "".join(token.surface + " " * token.space_after for token in tokens).rstrip(" ")


def align_tokens(text: str, tokens: Sequence[SurfaceToken]) -> RunningText | None:
    """Return the text with the characters of each token; None where they do not spell it.

    White space between tokens, and inside of them, may differ.
    """
    aligned, position = [], 0
    for token in tokens:
        span = _match(text, position, token.surface)
        if span is None:
            return None
        aligned.append((span, token.forms))
        position = span.end
    return RunningText(text, tuple(aligned)) if not text[position:].strip() else None


def _match(text: str, position: int, surface: str) -> Span | None:
    """Return the span of the next characters of a text if they are those of a token, whatever the white space."""
    while position < len(text) and text[position].isspace():
        position += 1
    if surface and text.startswith(surface, position):
        return Span(position, position + len(surface))
    start = end = position
    for character in surface:
        if character.isspace():
            continue
        while end > start and end < len(text) and text[end].isspace():
            end += 1
        if end == len(text) or text[end] != character:
            return None
        end += 1
    return Span(start, end) if end > start else None
