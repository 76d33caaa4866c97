"""Tokenizers of language models, characters and bytes without a prefix space: lossless on any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, InputError
from regard.text.tokenizer import ENCODER_SPECIAL_TOKENS, LM_SPECIAL_TOKENS, SEQ2SEQ_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SAMPLE_TEXTS = ["The cat sat\n\n  on the\tmat.", "née à Zürich, 你好 😀!", "<|endoftext|> <unk>"] * 3


def learned(kind: Any, specials: tuple[str, ...] = LM_SPECIAL_TOKENS) -> Tokenizer:
    return train_tokenizer(SAMPLE_TEXTS, TokenizerConfig(kind=kind, vocabulary=300), specials, add_prefix_space=False)


CHARACTERS = learned("characters")
BYTES = {kind: learned(kind) for kind in ("bpe", "unigram")}


class TestCharacters:
    def test_every_character_of_the_texts_is_a_token_and_no_other(self) -> None:
        known = sorted(set("".join(SAMPLE_TEXTS)))
        assert CHARACTERS.display_tokens(range(len(CHARACTERS)))[:2] == ["<|endoftext|>", "<unk>"]
        assert [CHARACTERS.id_to_token(index) for index in range(2, len(CHARACTERS))] == known

    @settings(max_examples=100, deadline=None)
    @given(text=st.text(alphabet=sorted(set("".join(SAMPLE_TEXTS)))))
    def test_decoding_inverts_encoding(self, text: str) -> None:
        ids = CHARACTERS.encode(text)
        assert len(ids) == len(text)
        assert CHARACTERS.decode(ids) == text

    def test_unseen_characters_become_one_unknown_token_each(self) -> None:
        unknown = CHARACTERS.special_id("unknown")
        ids = CHARACTERS.encode("aéß☃☃a")
        assert [index == unknown for index in ids] == [False, False, True, True, True, False]

    def test_special_token_spelled_in_text_is_text(self) -> None:
        ids = CHARACTERS.encode("<unk><|endoftext|>")
        assert not set(ids) & CHARACTERS.special_ids
        assert CHARACTERS.decode(ids) == "<unk><|endoftext|>"

    def test_words_and_display_tokens(self) -> None:
        ids = CHARACTERS.encode("The cat\nsat ")
        assert "".join(CHARACTERS.display_tokens(ids)) == "The▁cat␊sat▁"
        assert [word.text for word in CHARACTERS.words(ids)] == ["The", "cat", "sat", "▁"]
        assert [index for word in CHARACTERS.words(ids) for index in word.token_indices] == list(range(len(ids)))

    def test_unknown_token_is_the_task_s(self) -> None:
        assert learned("characters", ENCODER_SPECIAL_TOKENS).display_tokens(
            [learned("characters", ENCODER_SPECIAL_TOKENS).special_id("unknown")]
        ) == ["[UNK]"]
        assert learned("characters", SEQ2SEQ_SPECIAL_TOKENS).display_tokens([0, 1, 2, 3]) == [
            *SEQ2SEQ_SPECIAL_TOKENS,
            "<unk>",
        ]

    def test_saved_tokenizer_is_the_same(self, tmp_path: Path) -> None:
        CHARACTERS.save(tmp_path / "tokenizer.json")
        loaded = Tokenizer.load(tmp_path / "tokenizer.json", ("end", "unknown"))
        assert loaded.fingerprint == CHARACTERS.fingerprint == learned("characters").fingerprint
        assert loaded.encode(SAMPLE_TEXTS[0]) == CHARACTERS.encode(SAMPLE_TEXTS[0])

    def test_long_text_is_lossless(self) -> None:
        text = SAMPLE_TEXTS[0] * 40_000
        assert CHARACTERS.decode(CHARACTERS.encode(text)) == text

    def test_lone_surrogate_is_refused(self) -> None:
        with pytest.raises(InputError, match="character 3 of a text is half a character"):
            train_tokenizer(["ab\ud83d"], TokenizerConfig(kind="characters", vocabulary=300), LM_SPECIAL_TOKENS)

    def test_error_names_the_accepted_kinds(self) -> None:
        with pytest.raises(ConfigError, match="accepted: bpe, unigram, wordpiece, words, characters"):
            train_tokenizer(SAMPLE_TEXTS, TokenizerConfig(kind="ready", vocabulary=300))


@pytest.mark.parametrize("kind", BYTES)
class TestByteLevelWithoutPrefixSpace:
    @settings(max_examples=100, deadline=None)
    @given(text=st.lists(st.text(max_size=9) | st.sampled_from(["\n", " ", "the", "\t", "😀"])).map("".join))
    def test_decoding_inverts_encoding(self, kind: str, text: str) -> None:
        assert BYTES[kind].decode(BYTES[kind].encode(text)) == text

    def test_encoding_of_a_continuation_is_that_of_the_whole(self, kind: str) -> None:
        """No prefix space: split at a line end or before a space, a text has the tokens of the whole."""
        tokenizer = BYTES[kind]
        for parts in (("The cat sat", "\n on the mat"), ("The cat", " sat on"), ("na", " \n\n\tme")):
            ids = [index for part in parts for index in tokenizer.encode(part)]
            assert ids == tokenizer.encode("".join(parts))
