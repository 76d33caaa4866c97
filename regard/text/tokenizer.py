"""Text to ids and back, without loss: byte-level BPE or Unigram from the Rust library ``tokenizers``.

The one home of the special tokens. A text is given a space in front, split into words, digits and signs, and coded
from its UTF-8 bytes, so every string has ids and `decode(encode(text)) == text`. No sequence starts or ends here:
adding SOS and EOS is the task's work. Called by the tasks, the data store and everything that looks inside.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard import progress
from regard.disk import write_text
from regard.errors import CheckpointError, ConfigError, InputError

SPECIALS = ("<pad>", "<sos>", "<eos>")
PAD, SOS, EOS = range(len(SPECIALS))

N_BYTES = 256
SMALLEST = len(SPECIALS) + N_BYTES
"""Every byte is a piece: that is what makes every text codable."""

MIN_FREQUENCY = 2
"""A piece seen once in the text teaches a model nothing."""
MAX_PIECE_BYTES = 32
"""For Unigram; its default of 16 would end a Russian piece at 8 letters and a Hindi one at 5."""

WORDS = (
    r" ?[\p{L}\p{M}]{1,64}"  # letters with their marks
    r"| ?\p{N}"  # digits one by one
    r"| ?[^\s\p{L}\p{M}\p{N}]{1,64}"  # signs
    r"|\s{1,64}(?!\S)|\s{1,64}"  # spaces, leaving the last one to the word after them
)
"""What a piece may not reach across. Runs are cut at 64: training slows down with the square of the longest."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The recipe's [tokenizer] table."""

    kind: Literal["bpe", "unigram"] = "bpe"
    vocabulary: int
    joint: bool = True

    def __post_init__(self) -> None:
        if self.vocabulary < SMALLEST:
            least = f"the least is {SMALLEST}: {N_BYTES} bytes and {len(SPECIALS)} special tokens"
            raise ConfigError(f"tokenizer.vocabulary = {self.vocabulary}; {least}")


class Word(NamedTuple):
    """A word as a reader sees it, and the indices of the pieces it is made of."""

    text: str
    pieces: tuple[int, ...]


class Tokenizer:
    """A trained vocabulary; the same text always has the same ids."""

    def __init__(self, rust: Any) -> None:
        rust.encode_special_tokens = True  # "<eos>" in a text is text; the library does not save this
        self._rust = rust

    def __len__(self) -> int:
        size: int = self._rust.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without SOS or EOS; none for the empty text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        try:
            return [found.ids for found in self._rust.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            _refuse_surrogates(texts)
            raise

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without the special tokens; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._rust.decode(ids, skip_special_tokens=True)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as a reader can see them: ``▁`` for a space, ``<0xE2>`` for a part of a character."""
        return [self._pieces[index] for index in ids]

    def words(self, ids: Sequence[int]) -> list[Word]:
        """The words the ids make up: each starts at a space or at the start; a special token is one of its own."""
        words = []
        start = 0
        for place in range(1, len(ids) + 1):
            if place == len(ids) or self._parted(ids[place - 1], ids[place]):
                words.append(Word(self._word(ids[start:place]), tuple(range(start, place))))
                start = place
        return words

    def _parted(self, before: int, after: int) -> bool:
        """Whether a new word starts between two pieces; further spaces belong to the word they lead to."""
        if before < len(SPECIALS) or after < len(SPECIALS):
            return True
        return self._bytes[after][:1].isspace() and not self._bytes[before].isspace()

    def _word(self, ids: Sequence[int]) -> str:
        if ids[0] < len(SPECIALS):
            return SPECIALS[ids[0]]
        text = _text(b"".join(self._bytes[index] for index in ids))
        return _visible(text.strip() or text)

    @cached_property
    def _bytes(self) -> list[bytes]:
        """What each piece adds to a text; nothing for the special tokens."""
        byte_of = {letter: byte for byte, letter in enumerate(_byte_letters())}
        letters = [self._rust.id_to_token(index) for index in range(len(SPECIALS), len(self))]
        return [b""] * len(SPECIALS) + [bytes(byte_of[letter] for letter in piece) for piece in letters]

    @cached_property
    def _pieces(self) -> list[str]:
        return [*SPECIALS, *(_visible(_text(piece)) for piece in self._bytes[len(SPECIALS) :])]

    @cached_property
    def fingerprint(self) -> str:
        """A short name for this very vocabulary."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The ecosystem's tokenizer.json."""
        text: str = self._rust.to_str()
        return text

    def save(self, path: Path) -> None:
        """Write tokenizer.json, so that a crash leaves no half of it."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a tokenizer.json that regard wrote."""
        try:
            rust = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such tokenizer") from None
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: damaged, or not a tokenizer: {error}") from None
        names = tuple(rust.id_to_token(index) for index in range(len(SPECIALS)))
        if names != SPECIALS or not set(_byte_letters()) <= rust.get_vocab().keys():
            wanted = f"expected {', '.join(SPECIALS)} as its first pieces and all {N_BYTES} bytes"
            raise CheckpointError(f"{path}: not a tokenizer of regard; {wanted}")
        return cls(rust)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the two sides: one and the same when joint."""

    source: Tokenizer
    target: Tokenizer

    SOURCE_FILE = "tokenizer.json"
    TARGET_FILE = "tokenizer.target.json"

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def save(self, directory: Path) -> None:
        """Write one file when joint, else two."""
        self.source.save(directory / self.SOURCE_FILE)
        if self.joint:
            (directory / self.TARGET_FILE).unlink(missing_ok=True)
        else:
            self.target.save(directory / self.TARGET_FILE)

    @classmethod
    def load(cls, directory: Path, *, joint: bool) -> Tokenizers:
        source = Tokenizer.load(directory / cls.SOURCE_FILE)
        return cls(source, source if joint else Tokenizer.load(directory / cls.TARGET_FILE))


def choose_vocabulary(n_words: int) -> int:
    """A vocabulary for a text of so many words: 10 sqrt(words), from 512 to 32,000, in steps of 64."""
    step = 64
    return min(max(round(10 * math.sqrt(n_words) / step) * step, 512), 32_000)


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """A vocabulary learned from texts; it has fewer pieces than asked where the texts give no more."""
    rust = _untrained(config)
    with progress.bar(f"learning {config.vocabulary:,} pieces from texts") as shown:
        try:
            rust.train_from_iterator(_counted(texts, shown), _trainer(config))
        except UnicodeEncodeError as error:
            _refuse_surrogates([error.object])
            raise
    if config.kind == "unigram":
        rust.model = _settled(json.loads(rust.to_str())["model"]["vocab"], config.vocabulary)
    return Tokenizer(rust)


def _untrained(config: TokenizerConfig) -> Any:
    rust = tokenizers.Tokenizer(models.BPE() if config.kind == "bpe" else models.Unigram())
    rust.normalizer = normalizers.Prepend(" ")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"), to_bytes])
    rust.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return rust


def _trainer(config: TokenizerConfig) -> Any:
    common: dict[str, Any] = {
        "vocab_size": config.vocabulary,
        "special_tokens": list(SPECIALS),
        "initial_alphabet": _byte_letters(),
        "show_progress": False,  # ours is drawn instead
    }
    if config.kind == "bpe":
        return trainers.BpeTrainer(min_frequency=MIN_FREQUENCY, **common)
    return trainers.UnigramTrainer(max_piece_length=MAX_PIECE_BYTES, **common)


def _counted(texts: Iterable[str], shown: progress.Bar) -> Iterator[str]:
    """The texts themselves, counted by the thousand: a bar redrawn for each would cost more than the reading."""
    for number, text in enumerate(texts, start=1):
        yield text
        if number % 1000 == 0:
            shown.advance(1000)


def _settled(found: list[tuple[str, float | None]], size: int) -> Any:
    """The Unigram model in a fixed order, free of what the trainer leaves to chance.

    The trainer sums in the order of a random hash, which moves the last digits of a score; in that order it also
    gives the bytes that the text lacks the lowest score plus 0.0001, 0.0002, ... It scores null where there is no
    text, and overshoots the smallest size.
    """
    scores = {piece: score or 0.0 for piece, score in found[len(SPECIALS) :]}
    lowest = min(scores.values())
    for byte in _byte_letters():
        if scores[byte] <= lowest + N_BYTES * 1e-4:
            scores[byte] = lowest
    ranked = sorted(scores, key=lambda piece: (len(piece) > 1, -round(scores[piece], 3), piece))
    kept = [(piece, round(scores[piece], 3)) for piece in ranked[: size - len(SPECIALS)]]
    return models.Unigram([(name, 0.0) for name in SPECIALS] + kept)


def _byte_letters() -> list[str]:
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


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for text in texts:
        for place, character in enumerate(text, start=1):
            if "\ud800" <= character <= "\udfff":
                raise InputError(f"character {place} of a text is half a character (lone surrogate {character!a})")
