"""Incremental detokenization: whole characters only, and no prefix of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.incremental_detokenizer import IncrementalDetokenizer
from regard.text.tokenizer import LM_SPECIAL_TOKENS, SEQ2SEQ_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

SAMPLE_TEXTS = ["the cat sat, née 你好 😀 \ufffd", "stop here", "the end."] * 3
SMALL = TokenizerConfig(vocabulary=300)
LETTERS = TokenizerConfig(kind="characters", vocabulary=99)
TOKENIZERS = {
    "bytes": train_tokenizer(SAMPLE_TEXTS, SMALL, LM_SPECIAL_TOKENS, add_prefix_space=False),
    "spaced": train_tokenizer(SAMPLE_TEXTS, SMALL, SEQ2SEQ_SPECIAL_TOKENS),
    "characters": train_tokenizer(SAMPLE_TEXTS, LETTERS, LM_SPECIAL_TOKENS),
}
TOKENIZER = TOKENIZERS["bytes"]


def emitted_texts(tokenizer: Tokenizer, text: str, stops: tuple[str, ...] = (), before: str = "") -> list[str]:
    """Return the text emitted for each token after `before`, and at the end; none after a stop string."""
    first = tokenizer.encode(before)
    ids = tokenizer.encode(before + text)
    assert ids[: len(first)] == first
    detokenizer = IncrementalDetokenizer(tokenizer, first, stops)
    emitted = []
    for token in ids[len(first) :]:
        emitted.append(detokenizer.add(token))
        if detokenizer.stopped:
            break
    emitted.append(detokenizer.end())
    assert detokenizer.text == "".join(emitted)
    assert detokenizer.end() == ""
    assert IncrementalDetokenizer(tokenizer, first, stops).end(*ids[len(first) :]) == detokenizer.text
    return emitted


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("before", ["", "the cat"])
def test_emitted_text_concatenates_to_the_decoded_text(kind: str, before: str) -> None:
    for text in (" sat 你好 😀, née\n", " 😀😀", " \ufffd", " the end. \ufffd!"):
        known = "".join(each for each in text if kind != "characters" or each in "".join(SAMPLE_TEXTS))
        assert "".join(emitted_texts(TOKENIZERS[kind], known, before=before)) == known


def test_incomplete_character_is_held_back() -> None:
    emitted = emitted_texts(TOKENIZER, "a龘b")
    assert [each for each in emitted if each] == ["a", "龘", "b"]
    assert emitted[1:3] == ["", ""]


def test_incomplete_character_is_emitted_at_the_end() -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    given = [detokenizer.add(token) for token in TOKENIZER.encode("a龘")[:-1]]
    assert "".join(given) == "a"
    assert detokenizer.end() == "\ufffd"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_text_ends_before_a_stop_string(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert "".join(emitted_texts(tokenizer, "the cat sat", (" sat",))) == "the cat"
    assert "".join(emitted_texts(tokenizer, "the cat sat", ("e c", "at"))) == "th"
    assert "".join(emitted_texts(tokenizer, "the cat sat", ("the",))) == ""
    assert "".join(emitted_texts(tokenizer, "the cat sat", ("sata",))) == "the cat sat"


def test_prefix_of_a_stop_string_is_held_back() -> None:
    tokenizer = TOKENIZERS["characters"]
    assert emitted_texts(tokenizer, "a stop", ("stone", "op")) == ["a", " ", "", "", "", "st", ""]
    assert emitted_texts(tokenizer, "a ston", ("stone",)) == ["a", " ", "", "", "", "", "ston"]


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="the cao", max_size=20), stops=st.lists(st.text("the cao", min_size=1, max_size=3)))
def test_text_ends_at_the_stop_string_that_completes_first(text: str, stops: list[str]) -> None:
    ends = (end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops))
    end = next(ends, None)
    longest = max((len(stop) for stop in stops if text[:end].endswith(stop)), default=0)
    for kind in TOKENIZERS:
        emitted = "".join(emitted_texts(TOKENIZERS[kind], text, tuple(stops)))
        assert emitted == (text if end is None else text[: end - longest])


def test_nested_stop_strings_end_at_the_one_that_completes_first() -> None:
    for kind in TOKENIZERS:
        assert "".join(emitted_texts(TOKENIZERS[kind], "that cat", ("hat", "a"))) == "th"
        assert "".join(emitted_texts(TOKENIZERS[kind], "that cat", ("at", "hat"))) == "t"


def test_stop_string_begun_in_the_prompt_does_not_count() -> None:
    assert "".join(emitted_texts(TOKENIZER, " sat", ("cat sat",), before="the cat")) == " sat"
