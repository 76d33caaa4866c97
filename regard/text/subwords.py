"""How pieces are shown to a reader, and which of them make up a word: one class for each way of writing pieces.

    ByteLevel   letters that stand for bytes, a space included (ours, GPT-2, RoBERTa)
    WordPiece   a word, or ``##`` and how it goes on (BERT)
    Metaspace   ``▁`` for a space (XLM-R, Marian)
    Characters  each character by itself

The tokenizer chooses the class; nothing here knows ids or special tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

N_BYTES = 256


class Word(NamedTuple):
    """A word as a reader sees it, and the indices of the pieces it is made of."""

    text: str
    token_indices: tuple[int, ...]


class SubwordFormat(Protocol):
    """A way of writing pieces."""

    def display(self, subword: str) -> str:
        """The piece as a reader can see it."""

    def starts_new_word(self, previous: str, subword: str) -> bool:
        """Whether a new word starts between two pieces."""

    def join_word(self, subwords: Sequence[str]) -> str:
        """The word that some pieces make up, as a reader can see it."""


class ByteLevel:
    """Every byte has a letter; a space in front belongs to the word, further ones to the word they lead to."""

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
        """What the piece adds to a text; a token somebody added to a vocabulary is not written in letters of bytes."""
        if not set(subword) <= self._unicode_to_byte.keys():
            return subword.encode()
        return bytes(self._unicode_to_byte[letter] for letter in subword)


class WordPiece:
    """A piece starts a word unless it has the prefix of those that go on."""

    def __init__(self, prefix: str = "##") -> None:
        self.prefix = prefix

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return not subword.startswith(self.prefix)

    def join_word(self, subwords: Sequence[str]) -> str:
        return _make_visible("".join(piece.removeprefix(self.prefix) for piece in subwords))


class Metaspace:
    """A piece with ``▁`` in front starts a word."""

    SPACE_SYMBOL = "▁"

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return subword.startswith(self.SPACE_SYMBOL) and previous != self.SPACE_SYMBOL

    def join_word(self, subwords: Sequence[str]) -> str:
        text = "".join(subwords)
        return _make_visible(text.strip(self.SPACE_SYMBOL) or text)


class Characters:
    """A piece is a character; a space belongs to the word it leads to."""

    def display(self, subword: str) -> str:
        return _make_visible(subword)

    def starts_new_word(self, previous: str, subword: str) -> bool:
        return subword.isspace() and not previous.isspace()

    def join_word(self, subwords: Sequence[str]) -> str:
        text = "".join(subwords)
        return _make_visible(text.strip() or text)


def detect_subword_format(tokenizer_json: dict[str, Any]) -> SubwordFormat:
    """How a tokenizer writes its pieces, from its tokenizer.json."""
    model, decoder = tokenizer_json["model"], tokenizer_json.get("decoder") or {}
    if model.get("type") == "WordPiece":
        return WordPiece(model.get("continuing_subword_prefix") or "##")
    if decoder.get("type") == "Fuse":
        return Characters()
    decoders = decoder.get("decoders", [decoder])
    return ByteLevel() if any(each.get("type") == "ByteLevel" for each in decoders) else Metaspace()


def bytes_to_unicode() -> list[str]:
    """The letter that stands for each byte in the library's byte-level alphabet: itself where it can be seen."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(N_BYTES, 2 * N_BYTES))
    return [chr(byte if byte in seen else next(others)) for byte in range(N_BYTES)]


def _bytes_to_text(data: bytes) -> str:
    """Bytes as text; a byte that is no part of a character becomes the surrogate that stands for it."""
    return data.decode("utf-8", errors="surrogateescape")


def _make_visible(text: str) -> str:
    """The text with nothing in it that a reader could not see."""
    return "".join(character if "!" <= character <= "~" else _make_character_visible(character) for character in text)


def _make_character_visible(character: str) -> str:
    code = ord(character)
    if character == " ":
        return "▁"
    if unicodedata.category(character) == "Zs":  # no-break and narrow spaces, frequent in French
        return "⍽"
    if 0xDC80 <= code <= 0xDCFF:  # from _text
        return f"<0x{code - 0xDC00:02X}>"
    if code < 0x20:
        return chr(0x2400 + code)  # ␀ to ␟, the pictures of the control characters
    return character if character.isprintable() else f"<U+{code:04X}>"
