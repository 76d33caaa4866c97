"""Word segmentation: whole words in every script, and their spans."""

from __future__ import annotations

import unicodedata

import pytest

from regard.text.words import find_whitespace_words, find_words


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in find_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. O'Neil's (7,5 m) lands—well!", "Dr . O'Neil's ( 7,5 m ) lands — well !"),
        ("at 7:30, note: 1:2:3 a:b", "at 7:30 , note : 1:2:3 a : b"),
        ("मैं हिन्दी में पढ़ता हूँ।", "मैं हिन्दी में पढ़ता हूँ ।"),
        ("क्\u200dष और क्\u200cष", "क्\u200dष और क्\u200cष"),
        (unicodedata.normalize("NFD", "L'été, à Nîmes."), unicodedata.normalize("NFD", "L'été , à Nîmes .")),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("שָׁלוֹם עוֹלָם", "שָׁלוֹם עוֹלָם"),
        ("❤\ufe0f!", "❤\ufe0f !"),
        ("com\u00adpu\u00adter", "com\u00adpu\u00adter"),
        ("\u0301a", "\u0301a"),
        ("", ""),
    ],
)
def test_no_word_is_split_at_a_combining_mark(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_spans_are_character_indices() -> None:
    text = unicodedata.normalize("NFD", "où est-il ?")
    assert find_words(text) == [(0, 3), (4, 10), (11, 12)]
    assert find_whitespace_words("a  b-c\t!") == [(0, 1), (3, 6), (7, 8)]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_do_not_depend_on_unicode_normalisation(form: str) -> None:
    text = "Le garçon a mangé l'île flottante à Pâques (déjà)."
    normalised = words(unicodedata.normalize(form, text))
    assert [unicodedata.normalize("NFC", word) for word in normalised] == words(text)
