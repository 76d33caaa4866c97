"""Word segmentation as learned from annotated text: what it learned, what it must never do, and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_texts import ENGLISH, FRENCH, annotated

from regard.errors import CheckpointError
from regard.text.running_text import RunningText, SurfaceToken, align_tokens, join_tokens
from regard.text.segmenter_training import train_segmenter
from regard.text.word_segmenter import SEGMENTER_FILE, WordSegmenter, match_case
from regard.text.words import find_words


def learned(texts: list[RunningText]) -> WordSegmenter:
    segmenter = train_segmenter(lambda: iter(texts))
    assert segmenter is not None
    return segmenter


SEGMENTERS = {"en": learned(ENGLISH), "fr": learned(FRENCH)}


def forms(language: str, text: str) -> str:
    return " ".join(word.form.replace(" ", "_") for word in SEGMENTERS[language](text))


@pytest.mark.parametrize(("language", "texts"), [("en", ENGLISH), ("fr", FRENCH)])
def test_the_training_data_is_cut_as_it_is(language: str, texts: list[RunningText]) -> None:
    assert sum(len(SEGMENTERS[language]._cache) for _ in texts) >= 0
    for text in texts:
        assert SEGMENTERS[language](text.text) == text.words()


def test_new_words_are_cut_like_known_ones() -> None:
    assert forms("en", "He hadn't seen Mary's dog.") == "He had n't seen Mary 's dog ."
    assert forms("en", "The U.S. team cannot win!") == "The U.S. team can not win !"
    assert forms("en", "See http://x.org/d-e.html!") == "See http://x.org/d-e.html !"
    assert forms("en", "It won’t go.") == "It wo n’t go ."  # another apostrophe
    assert forms("en", "I go. He came.") == "I go . He came ."  # two sentences, though each was learned alone


def test_letters_are_cut_only_in_words_that_were() -> None:
    assert not SEGMENTERS["en"].splits_letters
    assert SEGMENTERS["en"].split_runs >= {"cannot"}
    assert forms("en", "cannons cannot") == "cannons can not"


def test_letters_are_cut_everywhere_where_that_is_usual() -> None:
    texts = [annotated(line) for line in ("我~爱~你", "你~爱~我", "他~爱~我", "我~看~他", "他~看~你")]
    segmenter = learned(texts)
    assert segmenter.splits_letters
    assert [word.form for word in segmenter("你看我")] == ["你", "看", "我"]


def test_words_that_a_token_does_not_spell() -> None:
    """They are looked up, in the case of the token, and have all of its characters."""
    words = SEGMENTERS["fr"]("Il vient DU nord, du sud et Au nord.")
    assert " ".join(word.form for word in words) == "Il vient DE LE nord , de le sud et À le nord ."
    assert [(word.start, word.end) for word in words[2:4]] == [(9, 11), (9, 11)]
    assert match_case("du", ["de", "le"]) == ["de", "le"]


def test_a_token_that_may_be_one_word_is_decided_by_those_beside_it() -> None:
    assert SEGMENTERS["fr"].expansions["des"].is_ambiguous
    assert not SEGMENTERS["fr"].expansions["du"].is_ambiguous
    assert forms("fr", "Elle parle des enfants.") == "Elle parle de les enfants ."
    assert forms("fr", "Elle voit des enfants.") == "Elle voit des enfants ."


def test_blanks_inside_of_words() -> None:
    assert SEGMENTERS["fr"].joins
    assert not SEGMENTERS["en"].joins
    assert forms("fr", "Il voit 30 000 gens.") == "Il voit 30_000 gens ."
    (number,) = (word for word in SEGMENTERS["fr"]("Il voit 30 \n000 gens.") if "30" in word.form)
    assert (number.start, number.end, number.form) == (8, 15, "30 \n000")


def test_with_little_data_words_are_cut_as_by_default() -> None:
    segmenter = learned([annotated("a b~.")])
    for text in ("(7,5 m), well-known—yes!", "don't: 7:30"):
        assert [(word.start, word.end) for word in segmenter(text)] == find_words(text)


RUNNING_TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n\t.,'’-@/:do n'tcanU.S.d\u0301\u200d\u00ad")
    )
)


@given(RUNNING_TEXTS, st.sampled_from(["en", "fr"]))
def test_words_cover_exactly_what_is_not_white_space(text: str, language: str) -> None:
    tokens = list(dict.fromkeys(word.token for word in SEGMENTERS[language](text)))
    covered = [place for token in tokens for place in range(*token) if not text[place].isspace()]
    assert covered == [place for place, character in enumerate(text) if not character.isspace()]
    assert all(not (text[token.start].isspace() or text[token.end - 1].isspace()) for token in tokens)


@given(RUNNING_TEXTS, st.sampled_from(["en", "fr"]))
def test_offsets_are_those_of_the_forms(text: str, language: str) -> None:
    words = SEGMENTERS[language](text)
    for word in words:
        assert word.token.start <= word.start < word.end <= word.token.end
        if (word.start, word.end) != word.token or sum(other.token == word.token for other in words) == 1:
            assert text[word.start : word.end] == word.form


@given(RUNNING_TEXTS)
def test_no_word_begins_with_a_combining_mark_within_a_chunk(text: str) -> None:
    for word in SEGMENTERS["en"](text):
        if word.start and not text[word.start - 1].isspace():
            assert text[word.start] not in "\u0301\u200d\u00ad"


@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1), st.booleans())
    )
)
def test_the_characters_of_tokens_are_found_again(items: list[tuple[str, bool]]) -> None:
    tokens = [SurfaceToken(surface, (surface,), space) for surface, space in items]
    text = align_tokens(join_tokens(tokens), tokens)
    assert text is not None
    assert [text.text[slice(*span)] for span, _ in text.tokens] == [surface for surface, _ in items]
    assert align_tokens(text.text + " x", tokens) is None
    stretched = align_tokens(text.text.replace(" ", " \n "), tokens)
    assert stretched is not None
    assert [word.form for word in stretched.words()] == [surface for surface, _ in items]


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    assert WordSegmenter.load_if_exists(tmp_path) is None
    for segmenter in SEGMENTERS.values():
        segmenter.save(tmp_path)
        assert WordSegmenter.load_if_exists(tmp_path) == segmenter


def test_training_twice_gives_the_same() -> None:
    assert learned(ENGLISH) == SEGMENTERS["en"]
    assert train_segmenter(lambda: iter([])) is None


DAMAGE = {
    "boundaries": {"a": [1, 2]},
    "joins": {"a": [1, "2"]},
    "expands": [],
    "expansions": {"du": [False]},
    "splits_letters": 1,
    "n_sentences": None,
    "split_runs": [[]],
}


@pytest.mark.parametrize("key", DAMAGE)
def test_a_damaged_file_is_refused(tmp_path: Path, key: str) -> None:
    SEGMENTERS["fr"].save(tmp_path)
    path = tmp_path / SEGMENTER_FILE
    tables = json.loads(path.read_text())
    for damaged in (tables | {key: DAMAGE[key]}, {name: each for name, each in tables.items() if name != key}, []):
        path.write_text(json.dumps(damaged))
        with pytest.raises(CheckpointError, match=r"segmenter\.json: damaged; restore it from a copy"):
            WordSegmenter.load_if_exists(tmp_path)
