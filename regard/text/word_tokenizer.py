"""Word tokenizers: every word is one token, for static word vectors and the models that start from them.

Words are runs of letters and digits, with apostrophes inside; every other character but white space is a word of its
own. Words outside the vocabulary are unknown. tokenizer_training.py calls `train_word_backend`,
training/pretrained_vectors.py `add_words`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from regard.text.pattern_limits import WORD_PATTERN
from regard.text.tokenizer import SPECIAL_TOKEN_ROLES, Tokenizer

MIN_WORD_FREQUENCY = 2
"""A word that occurs once teaches a model nothing."""


def train_word_backend(
    texts: Iterable[str], vocabulary_size: int, special_tokens: Sequence[str], *, lowercase: bool
) -> Any:
    """Return a tokenizer backend with the most frequent words of texts, in the order of their frequency."""
    named = _with_unknown(special_tokens)
    backend = _build_backend(models.WordLevel(unk_token=_unknown(named)), lowercase=lowercase)
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary_size, min_frequency=MIN_WORD_FREQUENCY, special_tokens=named, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return backend


def add_words(tokenizer: Tokenizer, words: Iterable[str], max_size: int) -> Tokenizer:
    """Return a word tokenizer with more words, up to `max_size` in all; words that it would split are left out."""
    parsed = json.loads(tokenizer.to_json())
    vocabulary: dict[str, int] = parsed["model"]["vocab"]
    backend = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    for word in words:
        if len(vocabulary) >= max_size:
            break
        if word not in vocabulary and _is_one_word(backend, word):
            vocabulary[word] = len(vocabulary)
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(parsed)))


def _is_one_word(backend: Any, word: str) -> bool:
    """Return True if a text of this word alone has it as its only word."""
    normalized = backend.normalizer.normalize_str(word)
    return normalized == word and [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(word)] == [word]


def _build_backend(model: Any, *, lowercase: bool) -> Any:
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_PATTERN), "removed", invert=True)
    return backend


def _with_unknown(special_tokens: Sequence[str]) -> list[str]:
    """Return the special tokens with one for unknown words."""
    has_unknown = any(name in SPECIAL_TOKEN_ROLES["unknown"] for name in special_tokens)
    return list(special_tokens) if has_unknown else [*special_tokens, "<unk>"]


def _unknown(special_tokens: Sequence[str]) -> str:
    return next(name for name in special_tokens if name in SPECIAL_TOKEN_ROLES["unknown"])
