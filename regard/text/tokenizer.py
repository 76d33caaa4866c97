"""Text to ids and back, by a trained vocabulary: ours or another library's ``tokenizer.json``.

The one home of the special tokens. No sequence starts or ends here: adding special tokens is the task's work, and a
text that spells one, as "<eos>", is text. Called by the tasks, the data store and everything that looks inside;
text/tokenizer_training.py learns vocabularies, text/subwords.py shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from regard.disk import write_text
from regard.errors import CheckpointError, InputError
from regard.text.fingerprints import digest_bytes
from regard.text.subwords import ByteLevel, SubwordFormat, Word, detect_subword_format

TOKENIZER_FILE = "tokenizer.json"
"""What the file of a vocabulary is called, here and elsewhere; of two, that of the source."""

SEQ2SEQ_SPECIAL_TOKENS = ("<pad>", "<sos>", "<eos>")
"""Those of translation, in the vocabularies that are learned here."""
PAD, SOS, EOS = range(len(SEQ2SEQ_SPECIAL_TOKENS))

ENCODER_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Those of encoders, in the vocabularies that are learned here."""
UNKNOWN_TOKEN = ENCODER_SPECIAL_TOKENS[1]

LM_SPECIAL_TOKENS = ("<|endoftext|>",)
"""Those of language models, in the vocabularies that are learned here: one that stands between documents."""

SPECIAL_TOKEN_ROLES = {
    "pad": ("<pad>", "[PAD]"),
    "unknown": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "start": ("<sos>", "<s>"),
    "end": ("<eos>", "</s>", "<|endoftext|>"),
}
"""What special tokens are for, and what they are called, here and elsewhere."""


class Tokenizer:
    """A trained vocabulary; the same text always has the same ids."""

    def __init__(self, backend: Any) -> None:
        backend.encode_special_tokens = True  # "<eos>" in a text is text; the library does not save this
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special_ids = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}

    def __len__(self) -> int:
        size: int = self._backend.get_vocab_size()
        return size

    def special_id(self, role: str) -> int:
        """The id of the special token with this role."""
        found = self.find_special_id(role)
        if found is not None:
            return found
        raise InputError(
            f"this vocabulary has no token for '{role}'; it would be {' or '.join(SPECIAL_TOKEN_ROLES[role])}"
        )

    def find_special_id(self, role: str) -> int | None:
        """The id of the special token with this role, if there is one."""
        ids: Iterator[int | None] = (self._backend.token_to_id(name) for name in SPECIAL_TOKEN_ROLES[role])
        return next((index for index in ids if index is not None), None)

    def token_to_id(self, token: str) -> int:
        """The id of the token with this very name."""
        index: int | None = self._backend.token_to_id(token)
        if index is None:
            raise InputError(f"this vocabulary has no token '{token}'; was its tokenizer.json exchanged?")
        return index

    def id_to_token(self, token_id: int) -> str:
        """The token with this id, as its file writes it."""
        return self._tokens[token_id]

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(self._special_ids)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens; none for the empty text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        try:
            return [found.ids for found in self._backend.encode_batch_fast(texts, add_special_tokens=False)]
        except TypeError:
            refuse_surrogates(texts)
            raise

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of words that stand in a text with spaces around them; a word nothing is left of is unknown."""
        spaced = self.is_byte_level and not self._prepends_space
        found = self.encode_batch([f" {word}" for word in words] if spaced else words)
        return [ids or [self.special_id("unknown")] for ids in found]

    def encode_continuation(self, text: str) -> list[int]:
        """The ids of a text that goes on after a special token: no space is put in front of it."""
        if not self._prepends_space:
            return self.encode(text)
        parts = self._backend.pre_tokenizer.pre_tokenize_str(text)
        return [token.id for part, _ in parts for token in self._backend.model.tokenize(part)]

    def encode_with_special_tokens(self, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """The ids and the parts of an input as tokenizer.json itself describes it: only to compare with ours."""
        found = self._backend.encode(first, second)
        return found.ids, found.type_ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without the special tokens; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._backend.decode(ids, skip_special_tokens=True)
        return text

    def display_tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces as a reader can see them: ``▁`` for a space, ``<0xE2>`` for a part of a character."""
        return [self._displayed_tokens[index] for index in ids]

    def words(self, ids: Sequence[int]) -> list[Word]:
        """The words the ids make up: each starts at a space or at the start; a special token is one of its own."""
        words = []
        start = 0
        for place in range(1, len(ids) + 1):
            if place == len(ids) or self._starts_new_word(ids[place - 1], ids[place]):
                words.append(Word(self._join_word(ids[start:place]), tuple(range(start, place))))
                start = place
        return words

    def _starts_new_word(self, previous_id: int, token_id: int) -> bool:
        """Whether a new word starts between two pieces."""
        if previous_id in self._special_ids or token_id in self._special_ids:
            return True
        return self._subword_format.starts_new_word(self._tokens[previous_id], self._tokens[token_id])

    def _join_word(self, ids: Sequence[int]) -> str:
        tokens = [self._tokens[index] for index in ids]
        return tokens[0] if ids[0] in self._special_ids else self._subword_format.join_word(tokens)

    @property
    def is_byte_level(self) -> bool:
        """The pieces are written in letters that stand for bytes."""
        return isinstance(self._subword_format, ByteLevel)

    @cached_property
    def _subword_format(self) -> SubwordFormat:
        return detect_subword_format(self._tokenizer_json)

    @cached_property
    def _tokenizer_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    @property
    def _prepends_space(self) -> bool:
        """Whether a text is given a space in front."""
        return (self._tokenizer_json["normalizer"] or {}).get("type") == "Prepend"

    @cached_property
    def _tokens(self) -> list[str]:
        return [self._backend.id_to_token(index) or "" for index in range(len(self))]

    @cached_property
    def _displayed_tokens(self) -> list[str]:
        return [
            token if index in self._special_ids else self._subword_format.display(token)
            for index, token in enumerate(self._tokens)
        ]

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 hexadecimal digits of the digest of tokenizer.json."""
        return digest_bytes([self.to_json().encode()])[:16]

    def to_json(self) -> str:
        """The ecosystem's tokenizer.json."""
        text: str = self._backend.to_str()
        return text

    def save(self, path: Path) -> None:
        """Write tokenizer.json, so that a crash leaves no half of it."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: Path, required_roles: Sequence[str] = ()) -> Tokenizer:
        """Read a tokenizer.json, which must have special tokens for these roles."""
        try:
            rust = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such tokenizer; restore it from a copy") from None
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: damaged, or not a tokenizer: {error}; restore it from a copy") from None
        found = cls(rust)
        for role in required_roles:
            if not any(rust.token_to_id(name) is not None for name in SPECIAL_TOKEN_ROLES[role]):
                raise CheckpointError(
                    f"{path}: no token for '{role}'; it would be {' or '.join(SPECIAL_TOKEN_ROLES[role])}"
                )
        return found


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the two sides: one and the same when joint."""

    source: Tokenizer
    target: Tokenizer

    TARGET_FILE = "tokenizer.target.json"

    @property
    def is_joint(self) -> bool:
        return self.source is self.target

    def save(self, directory: Path) -> None:
        """Write one file when joint, else two."""
        self.source.save(directory / TOKENIZER_FILE)
        if self.is_joint:
            (directory / self.TARGET_FILE).unlink(missing_ok=True)
        else:
            self.target.save(directory / self.TARGET_FILE)

    @classmethod
    def load(
        cls, directory: Path, *, is_joint: bool, required_roles: Sequence[str] = ("pad", "start", "end")
    ) -> TokenizerPair:
        source = Tokenizer.load(directory / TOKENIZER_FILE, required_roles)
        return cls(source, source if is_joint else Tokenizer.load(directory / cls.TARGET_FILE, required_roles))


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Name the character that no text in UTF-8 can have."""
    for text in texts:
        for place, character in enumerate(text, start=1):
            if "\ud800" <= character <= "\udfff":
                found = f"character {place} of a text is half a character (lone surrogate {character!a})"
                raise InputError(f"{found}; leave that character out")
