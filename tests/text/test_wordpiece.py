"""BERT's WordPiece: deterministic training, words from subwords, case and accents dropped on request."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from encoders import sentences, vocabulary

from regard.errors import ConfigError, InputError
from regard.text.subwords import Word
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SAMPLE_TEXTS = ["The café sat, on the Mat.", "the cafés were unmatched; the mats too!"] * 3
CASED = train_tokenizer(SAMPLE_TEXTS, TokenizerConfig(kind="wordpiece", vocabulary=90), ENCODER_SPECIAL_TOKENS)
SAME = train_tokenizer(
    SAMPLE_TEXTS, TokenizerConfig(kind="wordpiece", vocabulary=90, lowercase=True), ENCODER_SPECIAL_TOKENS
)


def test_training_is_deterministic_across_processes() -> None:
    code = (
        "import json, sys; from regard.text.tokenizer_training import *;"
        "from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS;"
        "config = TokenizerConfig(kind='wordpiece', vocabulary=60);"
        "print(train_tokenizer(json.load(sys.stdin), config, ENCODER_SPECIAL_TOKENS).fingerprint)"
    )
    texts = json.dumps(sentences(50))
    fingerprints = {
        subprocess.run([sys.executable, "-c", code], input=texts, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert fingerprints == {f"{train_tokenizer(sentences(50), config(60), ENCODER_SPECIAL_TOKENS).fingerprint}\n"}


def config(size: int) -> TokenizerConfig:
    return TokenizerConfig(kind="wordpiece", vocabulary=size)


def test_special_tokens_come_first_and_have_their_roles() -> None:
    assert CASED.display_tokens(range(5)) == list(ENCODER_SPECIAL_TOKENS)
    roles = ("pad", "unknown", "cls", "sep", "mask")
    assert [CASED.special_id(role) for role in roles] == list(range(5))
    assert CASED.special_ids == frozenset(range(5))
    with pytest.raises(InputError, match="this vocabulary has no token for 'end'; it would be <eos> or </s> or"):
        CASED.special_id("end")


def test_case_and_accents_are_dropped_on_request_only() -> None:
    assert SAME.encode("The CAFÉ") == SAME.encode("the cafe")
    assert CASED.encode("The") != CASED.encode("the")
    assert CASED.decode(CASED.encode("the café sat, on the Mat.")) == "the café sat, on the Mat."


@pytest.mark.parametrize("kind", ["wordpiece", "words", "bpe"])
@pytest.mark.parametrize(
    ("texts", "lowercase", "lacks_upper_case"),
    [
        (["a cat sat"], False, True),
        (["a cat sat"], True, False),  # it reads "CAT" as "cat"
        (["A cat sat"], False, False),
        (["12 34"], False, False),
    ],
)
def test_vocabulary_of_lower_case_text_lacks_upper_case(
    kind: str, texts: list[str], lowercase: bool, lacks_upper_case: bool
) -> None:
    size = {"bpe": 262, "words": 20, "wordpiece": 40}[kind]
    config = TokenizerConfig(kind=kind, vocabulary=size, lowercase=lowercase and kind != "bpe")  # type: ignore[arg-type]
    tokenizer = train_tokenizer(texts * 9, config, ENCODER_SPECIAL_TOKENS)
    assert tokenizer.lacks_upper_case == (lacks_upper_case and kind != "bpe"), "bytes know every letter"


def test_subwords_are_joined_to_words() -> None:
    words = vocabulary(size=45)
    ids = [words.special_id("cls"), *words.encode("plane lands, tokyo"), words.special_id("sep")]
    joined = words.words(ids)
    assert [word.text for word in joined] == ["[CLS]", "plane", "lands", "[UNK]", "tokyo", "[SEP]"]
    assert [index for word in joined for index in word.token_indices] == list(range(len(ids)))
    assert joined[0] == Word("[CLS]", (0,))
    assert any(len(word.token_indices) > 1 for word in joined)
    assert all(
        subword.startswith("##")
        for word in joined
        for subword in words.display_tokens([ids[p] for p in word.token_indices[1:]])
    )


def test_a_special_token_in_a_text_is_text() -> None:
    assert not set(CASED.encode("[MASK] [CLS]")) & {2, 3, 4}


def test_single_words_are_encoded_as_in_a_text() -> None:
    for kind in ("wordpiece", "bpe"):
        learned = vocabulary(kind, 330)
        text = sentences(1)[0]
        assert [index for ids in learned.encode_words(text.split()) for index in ids] == learned.encode(text)
    assert CASED.encode_words(["the", "\u200b", "cat"])[1] == [CASED.special_id("unknown")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wordpiece", "vocabulary": 20}, "tokenizer.vocabulary = 20; the least is 32"),
        ({"kind": "bpe", "vocabulary": 400, "lowercase": True}, 'only kinds "wordpiece" and "words" may drop case'),
    ],
)
def test_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(["the cat"], TokenizerConfig(**settings), ENCODER_SPECIAL_TOKENS)  # type: ignore[arg-type]
