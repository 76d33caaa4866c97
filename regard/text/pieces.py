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
    pieces: tuple[int, ...]


class Writing(Protocol):
    """A way of writing pieces."""

    def shown(self, piece: str) -> str:
        """The piece as a reader can see it."""

    def parted(self, before: str, after: str) -> bool:
        """Whether a new word starts between two pieces."""

    def word(self, pieces: Sequence[str]) -> str:
        """The word that some pieces make up, as a reader can see it."""


class ByteLevel:
    """Every byte has a letter; a space in front belongs to the word, further ones to the word they lead to."""

    def __init__(self) -> None:
        self._byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}

    def shown(self, piece: str) -> str:
        return _visible(_text(self._bytes(piece)))

    def parted(self, before: str, after: str) -> bool:
        return self._bytes(after)[:1].isspace() and not self._bytes(before).isspace()

    def word(self, pieces: Sequence[str]) -> str:
        text = _text(b"".join(map(self._bytes, pieces)))
        return _visible(text.strip() or text)

    def _bytes(self, piece: str) -> bytes:
        """What the piece adds to a text; a token somebody added to a vocabulary is not written in letters of bytes."""
        if not set(piece) <= self._byte_of.keys():
            return piece.encode()
        return bytes(self._byte_of[letter] for letter in piece)


class WordPiece:
    """A piece starts a word unless it has the prefix of those that go on."""

    def __init__(self, prefix: str = "##") -> None:
        self.prefix = prefix

    def shown(self, piece: str) -> str:
        return _visible(piece)

    def parted(self, before: str, after: str) -> bool:
        return not after.startswith(self.prefix)

    def word(self, pieces: Sequence[str]) -> str:
        return _visible("".join(piece.removeprefix(self.prefix) for piece in pieces))


class Metaspace:
    """A piece with ``▁`` in front starts a word."""

    MARK = "▁"

    def shown(self, piece: str) -> str:
        return _visible(piece)

    def parted(self, before: str, after: str) -> bool:
        return after.startswith(self.MARK) and before != self.MARK

    def word(self, pieces: Sequence[str]) -> str:
        text = "".join(pieces)
        return _visible(text.strip(self.MARK) or text)


class Characters:
    """A piece is a character; a space belongs to the word it leads to."""

    def shown(self, piece: str) -> str:
        return _visible(piece)

    def parted(self, before: str, after: str) -> bool:
        return after.isspace() and not before.isspace()

    def word(self, pieces: Sequence[str]) -> str:
        text = "".join(pieces)
        return _visible(text.strip() or text)


def writing(description: dict[str, Any]) -> Writing:
    """How a tokenizer writes its pieces, from its tokenizer.json."""
    model, decoder = description["model"], description.get("decoder") or {}
    if model.get("type") == "WordPiece":
        return WordPiece(model.get("continuing_subword_prefix") or "##")
    if decoder.get("type") == "Fuse":
        return Characters()
    decoders = decoder.get("decoders", [decoder])
    return ByteLevel() if any(each.get("type") == "ByteLevel" for each in decoders) else Metaspace()


def byte_letters() -> list[str]:
    """The letter that stands for each byte in the library's byte-level alphabet: itself where it can be seen."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(N_BYTES, 2 * N_BYTES))
    return [chr(byte if byte in seen else next(others)) for byte in range(N_BYTES)]


def _text(piece: bytes) -> str:
    """Bytes as text; a byte that is no part of a character becomes the surrogate that stands for it."""
    return piece.decode("utf-8", errors="surrogateescape")


def _visible(text: str) -> str:
    """The text with nothing in it that a reader could not see."""
    return "".join(character if "!" <= character <= "~" else _glyph(character) for character in text)


def _glyph(character: str) -> str:
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
