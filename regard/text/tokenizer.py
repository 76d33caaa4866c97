"""The tokenizer: text to token ids and back, from our own or another library's ``tokenizer.json``.

All special tokens are defined here, but adding them to a sequence is the task's work, and a text that spells one, such
as "<eos>", is plain text. Called by the tasks, the data store and everything that looks inside;
text/tokenizer_training.py trains tokenizers, text/subwords.py displays their tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from regard.disk import write_text
from regard.errors import CheckpointError, InputError
from regard.text.fingerprints import digest_bytes
from regard.text.subwords import ByteLevel, SubwordFormat, Word, detect_subword_format
from regard.text.tokenizer_file import convert_panics, load_backend

TOKENIZER_FILE = "tokenizer.json"
"""The file name of a tokenizer, as in Hugging Face; of two tokenizers, that of the source."""

SEQ2SEQ_SPECIAL_TOKENS = ("<pad>", "<sos>", "<eos>")
"""Special tokens of translation models trained here."""
PAD, SOS, EOS = range(len(SEQ2SEQ_SPECIAL_TOKENS))

ENCODER_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens of encoders trained here."""
UNKNOWN_TOKEN = ENCODER_SPECIAL_TOKENS[1]

WORD_VECTOR_SPECIAL_TOKENS = (UNKNOWN_TOKEN,)
"""Special tokens of word vectors trained here."""

LM_SPECIAL_TOKENS = ("<|endoftext|>",)
"""Special tokens of language models trained here: a document separator."""

MAX_BATCH_CHARACTERS = 1 << 20
"""Characters of the texts encoded at once, from which no more are added."""

SPECIAL_TOKEN_ROLES = {
    "pad": ("<pad>", "[PAD]"),
    "unknown": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "start": ("<sos>", "<s>"),
    "end": ("<eos>", "</s>", "<|endoftext|>"),
}
"""Roles of special tokens, and the names of each, ours first."""


class TokenizedText(NamedTuple):
    """The ids of a text; token i covers the characters from offsets[i][0] up to but excluding offsets[i][1]."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class Tokenizer:
    """A trained tokenizer; the same text always has the same ids."""

    def __init__(self, backend: Any) -> None:
        backend.encode_special_tokens = True  # "<eos>" in a text is text; tokenizer.json does not store this setting
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special_ids = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}

    def add_special_tokens_before_texts(self, tokens: Sequence[str]) -> None:
        """Make tokens special, and let other libraries find them in a text, where the space after them is theirs."""
        added = [tokenizers.AddedToken(token, rstrip=True, normalized=False, special=True) for token in tokens]
        self._backend.add_special_tokens(added)

    def __len__(self) -> int:
        size: int = self._backend.get_vocab_size()
        return size

    def special_id(self, role: str) -> int:
        """Return the id of the special token with this role."""
        token_id = self.find_special_id(role)
        if token_id is not None:
            return token_id
        raise InputError(
            f"this vocabulary has no token for '{role}'; it would be {' or '.join(SPECIAL_TOKEN_ROLES[role])}"
        )

    def find_special_id(self, role: str) -> int | None:
        """Return the id of the special token with this role, or None."""
        ids: Iterator[int | None] = (self._backend.token_to_id(name) for name in SPECIAL_TOKEN_ROLES[role])
        return next((index for index in ids if index is not None), None)

    def has_token(self, token: str) -> bool:
        """Return True if there is a token with exactly this name."""
        return self._backend.token_to_id(token) is not None

    def token_to_id(self, token: str) -> int:
        """Return the id of the token with exactly this name."""
        index: int | None = self._backend.token_to_id(token)
        if index is None:
            raise InputError(f"this vocabulary has no token '{token}'; was its tokenizer.json replaced?")
        return index

    def id_to_token(self, token_id: int) -> str:
        """Return the token with this id, as in tokenizer.json."""
        return self._tokens[token_id]

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(self._special_ids)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens; none for the empty text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of many texts, encoded on all cores."""
        return list(self.encode_stream(texts))

    def encode_stream(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yield the ids of any number of texts, encoded on all cores, a limited number of bytes at a time."""
        for _, encoding in self._encode(texts, self._backend.encode_batch_fast):
            yield encoding.ids

    def encode_with_offsets(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Return the ids of many texts, and the characters of the text that each token covers, without white space."""
        return [
            TokenizedText(encoding.ids, [_strip_span(text, *offsets) for offsets in encoding.offsets])
            for text, encoding in self._encode(texts, self._backend.encode_batch)
        ]

    @staticmethod
    def _encode(texts: Iterable[str], encode_batch: Callable[..., list[Any]]) -> Iterator[tuple[str, Any]]:
        """Yield texts with their encodings, each of which takes thirty times as much memory as its text."""
        for batch in _batch_texts(texts):
            try:
                with convert_panics("this tokenizer cannot encode a text", InputError):
                    encodings = encode_batch(batch, add_special_tokens=False)
            except TypeError:
                refuse_surrogates(batch)
                raise
            yield from zip(batch, encodings, strict=True)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word as within a text, between spaces; a word without tokens becomes unknown."""
        needs_space = self.is_byte_level and not self._prepends_space
        encoded = self.encode_batch([f" {word}" for word in words] if needs_space else words)
        return [ids or [self.special_id("unknown")] for ids in encoded]

    @convert_panics("this tokenizer cannot encode a text", InputError)
    def encode_continuation(self, text: str) -> list[int]:
        """Return the ids of a text that continues after a special token: no space is prepended."""
        if not self._prepends_space:
            return self.encode(text)
        parts = self._backend.pre_tokenizer.pre_tokenize_str(text)
        return [token.id for part, _ in parts for token in self._backend.model.tokenize(part)]

    @convert_panics("this tokenizer cannot encode a text", InputError)
    def encode_with_special_tokens(self, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """Return ids and token types by the post-processor of tokenizer.json: only to compare with ours."""
        encoding = self._backend.encode(first, second)
        return encoding.ids, encoding.type_ids

    @convert_panics("this tokenizer cannot decode its tokens", InputError)
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without the special tokens; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._backend.decode(ids, skip_special_tokens=True)
        return text

    def display_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens in readable form: ``▁`` for a space, ``<0xE2>`` for a byte of a character."""
        return [self._displayed_tokens[index] for index in ids]

    def words(self, ids: Sequence[int]) -> list[Word]:
        """Return the words that the ids form, split before spaces; each special token is a word of its own."""
        words = []
        start = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or self._starts_new_word(ids[end - 1], ids[end]):
                words.append(Word(self._join_word(ids[start:end]), tuple(range(start, end))))
                start = end
        return words

    def word_of_token(self, token_id: int) -> str | None:
        """Return the word that a token alone spells; None if it continues a word, or is special."""
        if token_id in self._special_ids or not self._subword_format.starts_new_word("x", self._tokens[token_id]):
            return None
        return self._join_word([token_id])

    def _starts_new_word(self, previous_id: int, token_id: int) -> bool:
        """Return True if a new word starts between two tokens."""
        if previous_id in self._special_ids or token_id in self._special_ids:
            return True
        return self._subword_format.starts_new_word(self._tokens[previous_id], self._tokens[token_id])

    def _join_word(self, ids: Sequence[int]) -> str:
        tokens = [self._tokens[index] for index in ids]
        return tokens[0] if ids[0] in self._special_ids else self._subword_format.join_word(tokens)

    @property
    def is_byte_level(self) -> bool:
        """True if tokens are sequences of bytes, as in GPT-2."""
        return isinstance(self._subword_format, ByteLevel)

    @cached_property
    def lacks_upper_case(self) -> bool:
        """True if the vocabulary has lower-case letters alone, and upper-case ones are unknown to it."""
        words = [token for index, token in enumerate(self._tokens) if index not in self._special_ids]
        cased = [word for word in words if word.upper() != word.lower()]
        if not cased or any(word != word.lower() for word in cased):
            return False
        return self.find_special_id("unknown") in self.encode(min(cased, key=len).upper())

    @cached_property
    def _subword_format(self) -> SubwordFormat:
        return detect_subword_format(self._tokenizer_json)

    @cached_property
    def _tokenizer_json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.to_json())
        return parsed

    @property
    def _prepends_space(self) -> bool:
        """True if a space is prepended to each text."""
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
        """Return the content of tokenizer.json."""
        text: str = self._backend.to_str()
        return text

    def save(self, path: Path) -> None:
        """Write tokenizer.json atomically."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: Path, required_roles: Sequence[str] = ()) -> Tokenizer:
        """Read a tokenizer.json, which must have special tokens for these roles."""
        rust = load_backend(path)
        tokenizer = cls(rust)
        for role in required_roles:
            if not any(rust.token_to_id(name) is not None for name in SPECIAL_TOKEN_ROLES[role]):
                raise CheckpointError(
                    f"{path}: no token for '{role}'; it would be {' or '.join(SPECIAL_TOKEN_ROLES[role])}"
                )
        return tokenizer


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of source and target: the same object when joint."""

    source: Tokenizer
    target: Tokenizer

    TARGET_FILE = "tokenizer.target.json"

    @property
    def is_joint(self) -> bool:
        return self.source is self.target

    def save(self, directory: Path) -> None:
        """Write one file if joint, else two."""
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


def _batch_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts in batches of about `MAX_BATCH_CHARACTERS`."""
    batch: list[str] = []
    n_characters = 0
    for text in texts:
        batch.append(text)
        n_characters += len(text)
        if n_characters >= MAX_BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Raise an error that names the first lone surrogate, which UTF-8 cannot encode."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"half a character (lone surrogate {text[error.start]!a})"
            raise InputError(f"character {error.start + 1} of a text is {half}; leave that character out") from None


def _strip_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span of a text without the white space at its ends; for white space alone, an empty span."""
    covered = text[start:end]
    start += len(covered) - len(covered.lstrip())
    return start, max(start, start + len(covered.strip()))
