"""Subword formats: how tokens are displayed and joined to words, one class for each notation of subwords.

    ByteLevel   a character for each byte, spaces included (ours, GPT-2, RoBERTa)
    WordPiece   a word, or ``##`` and its continuation (BERT)
    Metaspace   ``▁`` for a space (XLM-R, Marian)
    Characters  each character by itself
    WholeWords  each word by itself

The tokenizer chooses the class; nothing here knows ids or special tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

N_BYTES = 256


class Word(NamedTuple):
    """A word in readable form, and the indices of its tokens."""

    text: str
    token_indices: tuple[int, ...]


class SubwordFormat(Protocol):
    """A notation of subwords."""

    def display(self, subword: str) -> str:
        """Return the subword in readable form."""

    def starts_new_word(self, previous: str, subword: str) -> bool:
        """Return True if a new word starts between two subwords."""

    def join_word(self, subwords: Sequence[str]) -> str:
        """Return the word that subwords form, in readable form."""


class ByteLevel:
    """A character for each byte; leading spaces belong to the word after them."""

    def __init__(self) -> None:
        self._unicode_to_byte = {letter: byte for byte, letter in enumerate(bytes_to_unicode())}

    def display(self, subword: str) -> str:
        return _make_visible(_bytes_to_text(self._to_bytes(subword)))

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return self._to_bytes(subword)[:1].isspace() and not self._to_bytes(previous).isspace()

    def join_word(self, subwords: Sequence[str]) -> str:
        text = _bytes_to_text(b"".join(map(self._to_bytes, subwords)))
        return _make_visible(text.strip() or text)

    def _to_bytes(self, subword: str) -> bytes:
        """Return the bytes of a subword; tokens added to a vocabulary are plain text."""
        if not set(subword) <= self._unicode_to_byte.keys():
            return subword.encode()
        return bytes(self._unicode_to_byte[letter] for letter in subword)


class WordPiece:
    """A subword starts a word unless it has the continuation prefix."""

    def __init__(self, prefix: str = "##") -> None:
        self.prefix = prefix

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return not subword.startswith(self.prefix)

    def join_word(self, subwords: Sequence[str]) -> str:
        return _make_visible("".join(subword.removeprefix(self.prefix) for subword in subwords))


class Metaspace:
    """A subword that begins with ``▁`` starts a word."""

    SPACE_SYMBOL = "▁"

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return subword.startswith(self.SPACE_SYMBOL) and previous != self.SPACE_SYMBOL

    def join_word(self, subwords: Sequence[str]) -> str:
        text = "".join(subwords)
        return _make_visible(text.strip(self.SPACE_SYMBOL) or text)


class Characters:
    """Each subword is a character; a space belongs to the word after it."""

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return subword.isspace() and not previous.isspace()

    def join_word(self, subwords: Sequence[str]) -> str:
        text = "".join(subwords)
        return _make_visible(text.strip() or text)


class WholeWords:
    """Each token is a word."""

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return True

    def join_word(self, subwords: Sequence[str]) -> str:
        return _make_visible("".join(subwords))


def detect_subword_format(tokenizer_json: dict[str, Any]) -> SubwordFormat:
    """Return the subword format of a tokenizer from its tokenizer.json."""
    model, decoder = tokenizer_json["model"], tokenizer_json.get("decoder") or {}
    if model.get("type") == "WordPiece":
        return WordPiece(model.get("continuing_subword_prefix") or "##")
    if model.get("type") == "WordLevel":
        return WholeWords()
    if decoder.get("type") == "Fuse":
        return Characters()
    decoders = decoder.get("decoders", [decoder])
    return ByteLevel() if any(each.get("type") == "ByteLevel" for each in decoders) else Metaspace()


def bytes_to_unicode() -> list[str]:
    """Return the character for each byte in GPT-2's byte-level alphabet: itself if it is printable."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(N_BYTES, 2 * N_BYTES))
    return [chr(byte if byte in printable else next(others)) for byte in range(N_BYTES)]


def _bytes_to_text(data: bytes) -> str:
    """Return bytes as text; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", errors="surrogateescape")


def _make_visible(text: str) -> str:
    """Return the text with all invisible characters made visible."""
    return "".join(character if "!" <= character <= "~" else _make_character_visible(character) for character in text)


def _make_character_visible(character: str) -> str:
    code = ord(character)
    if character == " ":
        return "▁"
    if unicodedata.category(character) == "Zs":  # no-break and narrow spaces, frequent in French
        return "⍽"
    if 0xDC80 <= code <= 0xDCFF:  # from _bytes_to_text
        return f"<0x{code - 0xDC00:02X}>"
    if code < 0x20:
        return chr(0x2400 + code)  # ␀ to ␟, the pictures of the control characters
    return character if character.isprintable() else f"<U+{code:04X}>"
