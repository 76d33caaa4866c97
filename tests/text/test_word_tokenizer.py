"""Vocabularies of whole words: segmentation, frequency order, unknown words, words that are added."""

from __future__ import annotations

import pytest

from regard.errors import ConfigError
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, choose_vocabulary_size, train_tokenizer
from regard.text.word_tokenizer import add_words

SENTENCES = ["The cat, the cat's mat - don't!", "the Cat sat. the mat's 3.5", "don't sat The café the cat's mat café"]


def trained(vocabulary: int = 40, lowercase: bool = False) -> Tokenizer:
    config = TokenizerConfig(kind="words", vocabulary=vocabulary, lowercase=lowercase)
    return train_tokenizer(SENTENCES, config, ENCODER_SPECIAL_TOKENS)


def words_of(tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(index) for index in range(len(ENCODER_SPECIAL_TOKENS), len(tokenizer))]


def test_words_in_order_of_frequency() -> None:
    """Words that occur once are left out; equally frequent ones are sorted."""
    assert words_of(trained()) == ["the", ".", "The", "café", "cat's", "don't", "mat", "sat"]
    assert "The" not in words_of(trained(lowercase=True))


def test_the_vocabulary_has_at_most_the_size_asked() -> None:
    assert len(trained(8)) == 8


def test_unseen_words_are_unknown() -> None:
    tokenizer = trained()
    ids = tokenizer.encode("the dog sat")
    assert [tokenizer.id_to_token(index) for index in ids] == ["the", "[UNK]", "sat"]
    assert tokenizer.encode("don't") == [tokenizer.token_to_id("don't")]


def test_tokens_are_displayed_as_words() -> None:
    tokenizer = trained()
    ids = tokenizer.encode("the café sat")
    assert tokenizer.display_tokens(ids) == ["the", "café", "sat"]
    assert [word.text for word in tokenizer.words(ids)] == ["the", "café", "sat"]
    assert tokenizer.decode(ids) == "the café sat"


def test_words_are_added_unless_they_would_be_split() -> None:
    tokenizer = trained()
    more = add_words(tokenizer, ["the", "dog", "New_York", "hot dog", "rock-n-roll", "bird"], len(tokenizer) + 2)
    assert words_of(more) == [*words_of(tokenizer), "dog", "New_York"]
    assert more.encode("the dog") == [tokenizer.token_to_id("the"), len(tokenizer)]


def test_lower_case_vocabularies_take_no_other_words() -> None:
    assert "Dog" not in words_of(add_words(trained(lowercase=True), ["Dog"], 100))


@pytest.mark.parametrize(("kind", "text", "words"), [("wordpiece", "cat", "cat"), ("bpe", " cat", "cat")])
def test_the_word_that_a_token_spells(kind: str, text: str, words: str) -> None:
    config = TokenizerConfig(kind=kind, vocabulary=300)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(["the cat catcat cat"] * 4, config, ENCODER_SPECIAL_TOKENS)
    spelled = {tokenizer.word_of_token(index) for index in range(len(tokenizer))}
    assert words in spelled
    assert not any(word.startswith("##") for word in spelled if word)
    assert tokenizer.word_of_token(tokenizer.special_id("cls")) is None


def test_size_and_case() -> None:
    assert choose_vocabulary_size(1_000_000, "words") == 2 * choose_vocabulary_size(1_000_000)
    with pytest.raises(ConfigError, match='only kinds "wordpiece" and "words"'):
        TokenizerConfig(kind="bpe", vocabulary=300, lowercase=True)
