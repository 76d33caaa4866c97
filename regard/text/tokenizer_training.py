"""Tokenizer training: byte-level BPE and Unigram, BERT's WordPiece, whole words (word_tokenizer.py), and characters.

Byte-level tokenizers encode every string without loss: a space is prepended to a text (not for language models, which
continue other text), the text is pre-tokenized into words, digits and punctuation, and encoded from its UTF-8 bytes.
Character tokenizers map unseen characters to the unknown token. WordPiece pre-tokenizes as BERT does, and may drop
case, accents and spaces. The Rust library ``tokenizers`` does the work; the tasks call this when a run begins.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard import progress
from regard.config import AppliesIf
from regard.errors import ConfigError
from regard.ranges import MAX_VOCABULARY, Range, check_table
from regard.text.subwords import N_BYTES, bytes_to_unicode
from regard.text.tokenizer import (
    ENCODER_SPECIAL_TOKENS,
    SEQ2SEQ_SPECIAL_TOKENS,
    SPECIAL_TOKEN_ROLES,
    UNKNOWN_TOKEN,
    Tokenizer,
    refuse_surrogates,
)
from regard.text.word_tokenizer import train_word_backend

MIN_FREQUENCY = 2
"""A subword that occurs once teaches a model nothing."""
MIN_WORDPIECE_VOCABULARY = 32
"""Least size of a WordPiece vocabulary: special tokens and an alphabet."""
ALPHABET_LIMIT = 256
"""Characters of a WordPiece alphabet: up to this many, or an eighth of a larger vocabulary; rarer ones are unknown."""
MAX_SUBWORD_BYTES = 32
"""For Unigram; the default of 16 would limit a Russian subword to 8 letters and a Hindi one to 5."""

PRE_TOKENIZER_PATTERN = (
    r" ?[\p{L}\p{M}]{1,64}"  # letters with their marks
    r"| ?\p{N}"  # digits one by one
    r"| ?[^\s\p{L}\p{M}\p{N}]{1,64}"  # punctuation
    r"|\s{1,64}(?!\S)|\s{1,64}"  # spaces, leaving the last one to the word after them
)
"""Pre-tokens, which no subword crosses. Runs are split at 64: training time grows with the square of the longest."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The recipe's [tokenizer] table; a "ready" tokenizer was trained elsewhere.

    `start` is the directory of a translator whose vocabulary is taken instead of learning one.
    """

    kind: Literal["bpe", "unigram", "wordpiece", "words", "characters", "ready"] = "bpe"
    vocabulary: Annotated[int, Range(1, MAX_VOCABULARY)]
    joint: Annotated[bool, AppliesIf("task.name=translate")] = True
    lowercase: Annotated[bool, AppliesIf("tokenizer.kind=wordpiece", "tokenizer.kind=words")] = False
    start: Annotated[str, AppliesIf("task.name=translate")] = ""

    def __post_init__(self) -> None:
        check_table(self, "tokenizer")
        if self.lowercase and self.kind not in ("wordpiece", "words"):
            raise ConfigError('tokenizer.lowercase: only kinds "wordpiece" and "words" may drop case; leave it out')

    def check_vocabulary_size(self, special_tokens: Sequence[str]) -> None:
        """Raise an error if the vocabulary is smaller than bytes and special tokens."""
        least = f"{N_BYTES} bytes and {len(special_tokens)} special token{'s' if len(special_tokens) > 1 else ''}"
        if self.kind in ("bpe", "unigram") and self.vocabulary < min_vocabulary_size(special_tokens):
            raise ConfigError(
                f"tokenizer.vocabulary = {self.vocabulary}; the least is {min_vocabulary_size(special_tokens)}: {least}"
            )
        if self.kind == "wordpiece" and self.vocabulary < MIN_WORDPIECE_VOCABULARY:
            raise ConfigError(f"tokenizer.vocabulary = {self.vocabulary}; the least is {MIN_WORDPIECE_VOCABULARY}")


def min_vocabulary_size(special_tokens: Sequence[str] = SEQ2SEQ_SPECIAL_TOKENS) -> int:
    """Return the least size of a byte-level vocabulary: every byte and the special tokens, so any text is encodable."""
    return N_BYTES + len(special_tokens)


def choose_vocabulary_size(n_words: int, kind: str = "bpe") -> int:
    """Return a vocabulary size for a text of that many words: 10 sqrt(words), from 512 to 32,000, in steps of 64.

    A vocabulary of whole words has twice as many, up to 100,000.
    """
    step = 64
    factor, most = (20, 100_000) if kind == "words" else (10, 32_000)
    return min(max(round(factor * math.sqrt(n_words) / step) * step, 512), most)


def train_tokenizer(
    texts: Iterable[str],
    config: TokenizerConfig,
    special_tokens: Sequence[str] = SEQ2SEQ_SPECIAL_TOKENS,
    *,
    language_tokens: Sequence[str] = (),
    add_prefix_space: bool = True,
) -> Tokenizer:
    """Train a tokenizer on texts, with special tokens and those of languages, which take the space after them."""
    names = (*special_tokens, *language_tokens)
    tokenizer = _train_kind(texts, config, names, add_prefix_space=add_prefix_space)
    if language_tokens:
        tokenizer.add_special_tokens_before_texts(language_tokens)
    return tokenizer


def _train_kind(
    texts: Iterable[str], config: TokenizerConfig, special_tokens: Sequence[str], *, add_prefix_space: bool
) -> Tokenizer:
    """Train a tokenizer of the kind that its config names; it has fewer tokens than asked for if texts give no more.

    WordPiece reads the texts twice. A character tokenizer has exactly the characters of the texts. With
    `add_prefix_space`, byte-level ones prepend a space to each text, so that its first word is encoded like any other.
    """
    if config.kind == "ready":
        accepted = "bpe, unigram, wordpiece, words, characters"
        raise ConfigError(f'tokenizer.kind = "ready" is for models from elsewhere; accepted: {accepted}')
    config.check_vocabulary_size(special_tokens)
    if config.kind == "characters":
        return _build_character_tokenizer(texts, special_tokens)
    if config.kind == "wordpiece":
        return _train_wordpiece(texts, config, special_tokens)
    if config.kind == "words":
        return _train_words(texts, config, special_tokens)
    rust = _build_byte_level_backend(config, add_prefix_space=add_prefix_space)
    _train_backend(rust, texts, _build_trainer(config, list(special_tokens)), config)
    if config.kind == "unigram":
        rust.model = _canonicalize_unigram(
            json.loads(rust.to_str())["model"]["vocab"], config.vocabulary, special_tokens
        )
    return Tokenizer(rust)


def _train_backend(backend: Any, texts: Iterable[str], trainer: Any, config: TokenizerConfig) -> None:
    with progress.progress_bar(f"training a tokenizer of {config.vocabulary:,} tokens") as bar:
        try:
            backend.train_from_iterator(_track_texts(texts, bar), trainer)
        except UnicodeEncodeError as error:
            refuse_surrogates([error.object])
            raise


def _train_words(texts: Iterable[str], config: TokenizerConfig, special_tokens: Sequence[str]) -> Tokenizer:
    with progress.progress_bar(f"counting words for a vocabulary of {config.vocabulary:,}") as bar:
        tracked = _track_texts(texts, bar)
        return Tokenizer(train_word_backend(tracked, config.vocabulary, special_tokens, lowercase=config.lowercase))


def _train_wordpiece(texts: Iterable[str], config: TokenizerConfig, special_tokens: Sequence[str]) -> Tokenizer:
    """Train BERT's WordPiece, made deterministic.

    The trainer numbers letters in the order of a random hash, which breaks ties between merges: so each letter, by
    itself and as a continuation, is given its id beforehand. Learned subwords are sorted.
    """
    normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
    letters = _build_alphabet(texts, normalizer, max(ALPHABET_LIMIT, config.vocabulary // 8))
    numbered = [*special_tokens, *letters, *(f"##{letter}" for letter in letters)]
    rust = _build_bert_backend(models.WordPiece(unk_token=UNKNOWN_TOKEN), normalizer)
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocabulary,
        min_frequency=MIN_FREQUENCY,
        special_tokens=numbered,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        show_progress=False,
    )
    _train_backend(rust, texts, trainer, config)
    learned = sorted(json.loads(rust.to_str())["model"]["vocab"].keys() - set(numbered))
    vocabulary = {subword: index for index, subword in enumerate((*numbered, *learned))}
    backend = _build_bert_backend(models.WordPiece(vocabulary, unk_token=UNKNOWN_TOKEN), normalizer)
    backend.add_special_tokens(list(special_tokens))
    return Tokenizer(backend)


def _build_alphabet(texts: Iterable[str], normalizer: Any, max_size: int) -> list[str]:
    """Return the most frequent characters of the texts, sorted."""
    counts: Counter[str] = Counter()
    for text in progress.track(texts, "counting letters"):
        refuse_surrogates([text])
        counts.update(normalizer.normalize_str(text))
    ranked = sorted((letter for letter in counts if not letter.isspace()), key=lambda each: (-counts[each], each))
    return sorted(ranked[:max_size])


def _build_character_tokenizer(texts: Iterable[str], special_tokens: Sequence[str]) -> Tokenizer:
    """Build a tokenizer with a token for every character, sorted by code point, and one for unseen characters.

    It is a BPE without merges, which is several times faster than splitting the text beforehand.
    """
    characters: set[str] = set()
    for text in progress.track(texts, "counting characters"):
        new = set(text) - characters
        refuse_surrogates([text] if any("\ud800" <= each <= "\udfff" for each in new) else [])
        characters |= new
    unknown = next((name for name in special_tokens if name in SPECIAL_TOKEN_ROLES["unknown"]), "")
    named = list(special_tokens) if unknown else [*special_tokens, "<unk>"]
    numbered = {token: index for index, token in enumerate((*named, *sorted(characters)))}
    rust = tokenizers.Tokenizer(models.BPE(numbered, [], unk_token=unknown or "<unk>", fuse_unk=False))
    rust.decoder = decoders.Fuse()
    rust.add_special_tokens(named)
    return Tokenizer(rust)


def _build_byte_level_backend(config: TokenizerConfig, *, add_prefix_space: bool) -> Any:
    rust = tokenizers.Tokenizer(models.BPE() if config.kind == "bpe" else models.Unigram())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), "isolated"), to_bytes]
    )
    rust.decoder = decoders.ByteLevel()
    if add_prefix_space:
        rust.normalizer = normalizers.Prepend(" ")
        rust.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return rust


def build_bert_tokenizer(
    words: Sequence[str], *, lowercase: bool, strip_accents: bool | None, tokenize_chinese_chars: bool
) -> Tokenizer:
    """Build BERT's WordPiece from the words of a vocab.txt, in the order of their ids."""
    model = models.WordPiece({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN_TOKEN)
    rust = _build_bert_backend(
        model,
        normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=tokenize_chinese_chars
        ),
    )
    rust.add_special_tokens(list(ENCODER_SPECIAL_TOKENS))
    return Tokenizer(rust)


def _build_bert_backend(model: Any, normalizer: Any) -> Any:
    rust = tokenizers.Tokenizer(model)
    rust.normalizer = normalizer
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece()
    return rust


def _build_trainer(config: TokenizerConfig, special_tokens: list[str]) -> Any:
    common: dict[str, Any] = {
        "vocab_size": config.vocabulary,
        "special_tokens": special_tokens,
        "show_progress": False,  # our own progress bar is shown instead
    }
    common["initial_alphabet"] = bytes_to_unicode()
    if config.kind == "bpe":
        return trainers.BpeTrainer(min_frequency=MIN_FREQUENCY, **common)
    return trainers.UnigramTrainer(max_piece_length=MAX_SUBWORD_BYTES, **common)


def _track_texts(texts: Iterable[str], progress_bar: progress.ProgressBar) -> Iterator[str]:
    """Yield the texts and advance the bar by thousands: one redraw per text would cost more than reading it."""
    for number, text in enumerate(texts, start=1):
        yield text
        if number % 1000 == 0:
            progress_bar.advance(1000)


def _canonicalize_unigram(
    vocabulary: list[tuple[str, float | None]], vocabulary_size: int, special_tokens: Sequence[str]
) -> Any:
    """Return the Unigram model in a fixed order, made deterministic.

    The trainer sums in the order of a random hash, which changes the last digits of a score; in that order it also
    gives bytes that do not occur the lowest score plus 0.0001, 0.0002, ... Without text its scores are null, and it
    exceeds the smallest size.
    """
    scores = {subword: score or 0.0 for subword, score in vocabulary[len(special_tokens) :]}
    lowest = min(scores.values())
    for byte in bytes_to_unicode():
        if scores[byte] <= lowest + N_BYTES * 1e-4:
            scores[byte] = lowest
    ranked = sorted(scores, key=lambda subword: (len(subword) > 1, -round(scores[subword], 3), subword))
    entries = [(subword, round(scores[subword], 3)) for subword in ranked[: vocabulary_size - len(special_tokens)]]
    return models.Unigram([(name, 0.0) for name in special_tokens] + entries)
