"""Vocabularies learned from text: byte-level BPE and Unigram, BERT's WordPiece, and plain characters.

Byte-level ones code every string without loss: a text is given a space in front (not for language models, which go on
where another text ends), split into words, digits and signs, and coded from its UTF-8 bytes. Characters are coded each
by itself, and those never seen are unknown. WordPiece reads words as BERT does, and may forget case, accents and
spaces. The Rust library ``tokenizers`` does the work; the tasks call this when a run begins.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard import progress
from regard.errors import ConfigError
from regard.text.subwords import N_BYTES, bytes_to_unicode
from regard.text.tokenizer import (
    ENCODER_SPECIAL_TOKENS,
    SEQ2SEQ_SPECIAL_TOKENS,
    SPECIAL_TOKEN_ROLES,
    UNKNOWN_TOKEN,
    Tokenizer,
    refuse_surrogates,
)

MIN_FREQUENCY = 2
"""A piece seen once in the text teaches a model nothing."""
MIN_WORDPIECE_VOCABULARY = 32
"""Pieces of a vocabulary of words: special tokens and an alphabet."""
ALPHABET_LIMIT = 256
"""Letters of a vocabulary of words, at least; of a larger one an eighth may be letters, and rarer ones are unknown."""
MAX_SUBWORD_BYTES = 32
"""For Unigram; its default of 16 would end a Russian piece at 8 letters and a Hindi one at 5."""

PRE_TOKENIZER_PATTERN = (
    r" ?[\p{L}\p{M}]{1,64}"  # letters with their marks
    r"| ?\p{N}"  # digits one by one
    r"| ?[^\s\p{L}\p{M}\p{N}]{1,64}"  # signs
    r"|\s{1,64}(?!\S)|\s{1,64}"  # spaces, leaving the last one to the word after them
)
"""What a piece may not reach across. Runs are cut at 64: training slows down with the square of the longest."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """The recipe's [tokenizer] table; a "ready" vocabulary was learned elsewhere."""

    kind: Literal["bpe", "unigram", "wordpiece", "characters", "ready"] = "bpe"
    vocabulary: int
    joint: bool = True
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.lowercase and self.kind != "wordpiece":
            raise ConfigError('tokenizer.lowercase: only kind = "wordpiece" may forget case; leave it out')

    def check_vocabulary_size(self, special_tokens: Sequence[str]) -> None:
        """Refuse to ask for fewer pieces than there must be beside these; of little text fewer may be learned."""
        least = f"{N_BYTES} bytes and {len(special_tokens)} special token{'s' if len(special_tokens) > 1 else ''}"
        if self.kind in ("bpe", "unigram") and self.vocabulary < min_vocabulary_size(special_tokens):
            raise ConfigError(
                f"tokenizer.vocabulary = {self.vocabulary}; the least is {min_vocabulary_size(special_tokens)}: {least}"
            )
        if self.kind == "wordpiece" and self.vocabulary < MIN_WORDPIECE_VOCABULARY:
            raise ConfigError(f"tokenizer.vocabulary = {self.vocabulary}; the least is {MIN_WORDPIECE_VOCABULARY}")


def min_vocabulary_size(special_tokens: Sequence[str] = SEQ2SEQ_SPECIAL_TOKENS) -> int:
    """Every byte is a piece, beside the special tokens: that is what makes every text codable."""
    return N_BYTES + len(special_tokens)


def choose_vocabulary_size(n_words: int) -> int:
    """A vocabulary for a text of so many words: 10 sqrt(words), from 512 to 32,000, in steps of 64."""
    step = 64
    return min(max(round(10 * math.sqrt(n_words) / step) * step, 512), 32_000)


def train_tokenizer(
    texts: Iterable[str],
    config: TokenizerConfig,
    special_tokens: Sequence[str] = SEQ2SEQ_SPECIAL_TOKENS,
    *,
    add_prefix_space: bool = True,
) -> Tokenizer:
    """A vocabulary learned from texts; it has fewer pieces than asked where the texts give no more.

    Words are learned from texts that can be read twice. Of characters it has just those of the texts. `spaced` says
    that byte-level ones give each text a space in front, so that its first word is coded like any other.
    """
    if config.kind == "ready":
        accepted = "bpe, unigram, wordpiece, characters"
        raise ConfigError(f'tokenizer.kind = "ready" is for models from elsewhere; accepted: {accepted}')
    config.check_vocabulary_size(special_tokens)
    if config.kind == "characters":
        return _build_character_tokenizer(texts, special_tokens)
    if config.kind == "wordpiece":
        return _train_wordpiece(texts, config, special_tokens)
    rust = _build_byte_level_backend(config, add_prefix_space=add_prefix_space)
    _train_backend(rust, texts, _build_trainer(config, list(special_tokens)), config)
    if config.kind == "unigram":
        rust.model = _canonicalize_unigram(
            json.loads(rust.to_str())["model"]["vocab"], config.vocabulary, special_tokens
        )
    return Tokenizer(rust)


def _train_backend(backend: Any, texts: Iterable[str], trainer: Any, config: TokenizerConfig) -> None:
    with progress.progress_bar(f"learning {config.vocabulary:,} pieces from texts") as shown:
        try:
            backend.train_from_iterator(_track_texts(texts, shown), trainer)
        except UnicodeEncodeError as error:
            refuse_surrogates([error.object])
            raise


def _train_wordpiece(texts: Iterable[str], config: TokenizerConfig, special_tokens: Sequence[str]) -> Tokenizer:
    """BERT's vocabulary, free of what the trainer leaves to chance.

    It numbers letters in the order of a random hash, by which it then decides between merges that are equally good: so
    each letter, by itself and as a continuation, is given its number beforehand. Pieces end in alphabetical order.
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
    words = {piece: index for index, piece in enumerate((*numbered, *learned))}
    settled = _build_bert_backend(models.WordPiece(words, unk_token=UNKNOWN_TOKEN), normalizer)
    settled.add_special_tokens(list(special_tokens))
    return Tokenizer(settled)


def _build_alphabet(texts: Iterable[str], normalizer: Any, max_size: int) -> list[str]:
    """The most frequent letters and signs of the texts, in alphabetical order."""
    counts: Counter[str] = Counter()
    for text in progress.track(texts, "counting letters"):
        refuse_surrogates([text])
        counts.update(normalizer.normalize_str(text))
    ranked = sorted((letter for letter in counts if not letter.isspace()), key=lambda each: (-counts[each], each))
    return sorted(ranked[:max_size])


def _build_character_tokenizer(texts: Iterable[str], special_tokens: Sequence[str]) -> Tokenizer:
    """A token for every character, in the order of their codes, and one for those that never occurred.

    It is a BPE without merges: that is several times faster than parting the text beforehand.
    """
    found: set[str] = set()
    for text in progress.track(texts, "counting characters"):
        new = set(text) - found
        refuse_surrogates([text] if any("\ud800" <= each <= "\udfff" for each in new) else [])
        found |= new
    unknown = next((name for name in special_tokens if name in SPECIAL_TOKEN_ROLES["unknown"]), "")
    named = list(special_tokens) if unknown else [*special_tokens, "<unk>"]
    numbered = {token: index for index, token in enumerate((*named, *sorted(found)))}
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
    """BERT's with the words of somebody else, in the order of their ids."""
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
        "show_progress": False,  # ours is drawn instead
    }
    common["initial_alphabet"] = bytes_to_unicode()
    if config.kind == "bpe":
        return trainers.BpeTrainer(min_frequency=MIN_FREQUENCY, **common)
    return trainers.UnigramTrainer(max_piece_length=MAX_SUBWORD_BYTES, **common)


def _track_texts(texts: Iterable[str], progress_bar: progress.ProgressBar) -> Iterator[str]:
    """The texts themselves, counted by the thousand: a bar redrawn for each would cost more than the reading."""
    for number, text in enumerate(texts, start=1):
        yield text
        if number % 1000 == 0:
            progress_bar.advance(1000)


def _canonicalize_unigram(
    vocabulary: list[tuple[str, float | None]], vocabulary_size: int, special_tokens: Sequence[str]
) -> Any:
    """The Unigram model in a fixed order, free of what the trainer leaves to chance.

    The trainer sums in the order of a random hash, which moves the last digits of a score; in that order it also
    gives the bytes that the text lacks the lowest score plus 0.0001, 0.0002, ... It scores null where there is no
    text, and overshoots the smallest size.
    """
    scores = {piece: score or 0.0 for piece, score in vocabulary[len(special_tokens) :]}
    lowest = min(scores.values())
    for byte in bytes_to_unicode():
        if scores[byte] <= lowest + N_BYTES * 1e-4:
            scores[byte] = lowest
    ranked = sorted(scores, key=lambda piece: (len(piece) > 1, -round(scores[piece], 3), piece))
    kept = [(piece, round(scores[piece], 3)) for piece in ranked[: vocabulary_size - len(special_tokens)]]
    return models.Unigram([(name, 0.0) for name in special_tokens] + kept)
