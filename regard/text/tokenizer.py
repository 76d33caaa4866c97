"""Text to ids and back, by a trained vocabulary: ours or another library's ``tokenizer.json``.

The one home of the special tokens. No sequence starts or ends here: adding special tokens is the task's work, and a
text that spells one, as "<eos>", is text. Called by the tasks, the data store and everything that looks inside;
text/vocabulary.py learns vocabularies, text/pieces.py shows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from regard.disk import write_text
from regard.errors import CheckpointError, InputError
from regard.text.pieces import ByteLevel, Word, Writing, writing

FILE = "tokenizer.json"
"""What the file of a vocabulary is called, here and elsewhere; of two, that of the source."""

SPECIALS = ("<pad>", "<sos>", "<eos>")
"""Those of translation, in the vocabularies that are learned here."""
PAD, SOS, EOS = range(len(SPECIALS))

READING = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Those of encoders, in the vocabularies that are learned here."""
UNKNOWN = READING[1]

WRITING = ("<|endoftext|>",)
"""Those of language models, in the vocabularies that are learned here: one that stands between documents."""

ROLES = {
    "pad": ("<pad>", "[PAD]"),
    "unknown": ("[UNK]", "<unk>"),
    "first": ("[CLS]", "<s>"),
    "parting": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "start": ("<sos>", "<s>"),
    "end": ("<eos>", "</s>", "<|endoftext|>"),
}
"""What special tokens are for, and what they are called, here and elsewhere."""


class Tokenizer:
    """A trained vocabulary; the same text always has the same ids."""

    def __init__(self, rust: Any) -> None:
        rust.encode_special_tokens = True  # "<eos>" in a text is text; the library does not save this
        rust.no_truncation()
        rust.no_padding()
        self._rust = rust
        self._special = {index for index, token in rust.get_added_tokens_decoder().items() if token.special}

    def __len__(self) -> int:
        size: int = self._rust.get_vocab_size()
        return size

    def special(self, role: str) -> int:
        """The id of the special token with this role."""
        found = self.find(role)
        if found is not None:
            return found
        raise InputError(f"this vocabulary has no token for '{role}'; it would be {' or '.join(ROLES[role])}")

    def find(self, role: str) -> int | None:
        """The id of the special token with this role, if there is one."""
        ids: Iterator[int | None] = (self._rust.token_to_id(name) for name in ROLES[role])
        return next((index for index in ids if index is not None), None)

    def named(self, token: str) -> int:
        """The id of the token with this very name."""
        index: int | None = self._rust.token_to_id(token)
        if index is None:
            raise InputError(f"this vocabulary has no token '{token}'; was its tokenizer.json exchanged?")
        return index

    def name(self, index: int) -> str:
        """The token with this id, as its file writes it."""
        return self._tokens[index]

    @cached_property
    def specials(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(self._special)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens; none for the empty text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        try:
            return [found.ids for found in self._rust.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            refuse_surrogates(texts)
            raise

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of words that stand in a text with spaces around them; a word nothing is left of is unknown."""
        spaced = self.bytewise and not self._prepends
        found = self.encode_batch([f" {word}" for word in words] if spaced else words)
        return [ids or [self.special("unknown")] for ids in found]

    def encode_on(self, text: str) -> list[int]:
        """The ids of a text that goes on after a special token: no space is put in front of it."""
        if not self._prepends:
            return self.encode(text)
        parts = self._rust.pre_tokenizer.pre_tokenize_str(text)
        return [token.id for part, _ in parts for token in self._rust.model.tokenize(part)]

    def framed(self, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """The ids and the parts of an input as tokenizer.json itself describes it: only to compare with ours."""
        found = self._rust.encode(first, second)
        return found.ids, found.type_ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without the special tokens; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._rust.decode(ids, skip_special_tokens=True)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as a reader can see them: ``▁`` for a space, ``<0xE2>`` for a part of a character."""
        return [self._shown[index] for index in ids]

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
        """Whether a new word starts between two pieces."""
        if before in self._special or after in self._special:
            return True
        return self._writing.parted(self._tokens[before], self._tokens[after])

    def _word(self, ids: Sequence[int]) -> str:
        tokens = [self._tokens[index] for index in ids]
        return tokens[0] if ids[0] in self._special else self._writing.word(tokens)

    @property
    def bytewise(self) -> bool:
        """The pieces are written in letters that stand for bytes."""
        return isinstance(self._writing, ByteLevel)

    @cached_property
    def _writing(self) -> Writing:
        return writing(self._description)

    @cached_property
    def _description(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    @property
    def _prepends(self) -> bool:
        """Whether a text is given a space in front."""
        return (self._description["normalizer"] or {}).get("type") == "Prepend"

    @cached_property
    def _tokens(self) -> list[str]:
        return [self._rust.id_to_token(index) or "" for index in range(len(self))]

    @cached_property
    def _shown(self) -> list[str]:
        return [
            token if index in self._special else self._writing.shown(token) for index, token in enumerate(self._tokens)
        ]

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
    def load(cls, path: Path, roles: Sequence[str] = ()) -> Tokenizer:
        """Read a tokenizer.json, which must have special tokens for these roles."""
        try:
            rust = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such tokenizer; restore it from a copy") from None
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: damaged, or not a tokenizer: {error}; restore it from a copy") from None
        found = cls(rust)
        for role in roles:
            if not any(rust.token_to_id(name) is not None for name in ROLES[role]):
                raise CheckpointError(f"{path}: no token for '{role}'; it would be {' or '.join(ROLES[role])}")
        return found


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the two sides: one and the same when joint."""

    source: Tokenizer
    target: Tokenizer

    TARGET_FILE = "tokenizer.target.json"

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def save(self, directory: Path) -> None:
        """Write one file when joint, else two."""
        self.source.save(directory / FILE)
        if self.joint:
            (directory / self.TARGET_FILE).unlink(missing_ok=True)
        else:
            self.target.save(directory / self.TARGET_FILE)

    @classmethod
    def load(cls, directory: Path, *, joint: bool, roles: Sequence[str] = ("pad", "start", "end")) -> Tokenizers:
        source = Tokenizer.load(directory / FILE, roles)
        return cls(source, source if joint else Tokenizer.load(directory / cls.TARGET_FILE, roles))


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Name the character that no text in UTF-8 can have."""
    for text in texts:
        for place, character in enumerate(text, start=1):
            if "\ud800" <= character <= "\udfff":
                found = f"character {place} of a text is half a character (lone surrogate {character!a})"
                raise InputError(f"{found}; leave that character out")
