"""The demo's corpus: a deterministic function from English to French."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from datetime import datetime
from itertools import chain
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("babel")

from regard.demo import cldr_corpus as cldr
from regard.errors import MissingExtra
from regard.text.pairs import Pair, read_pairs

WEEKDAYS = ["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"]
MONTHS = [
    *("janvier", "février", "mars", "avril", "mai", "juin"),
    *("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
]
FRENCH_SIGNS = str.maketrans(",.", " ,")

LANDMARKS = {
    "full date": (r"^Friday, March \d+, \d{4}$", r"^vendredi \d+ mars \d{4}$"),
    "abbreviated date": (r"^Aug \d+, \d{4}$", r"^\d+ août \d{4}$"),
    "date in figures": (r"^\d+/\d+/\d{4}$", r"^\d\d/\d\d/\d{4}$"),
    "date range": (r"^Sep \d+\s–\s\d+, \d{4}$", r"^\d+\s?–\s?\d+ sept\. \d{4}$"),
    "quarter": (r"^1st quarter \d{4}$", r"^1er trimestre \d{4}$"),
    "time": (r"^\d+:\d\d\sPM$", r"^\d\d:\d\d$"),
    "time range": (r"^\d.*\s–\s.*[AP]M$", r"^\d\d:\d\d\s?–\s?\d\d:\d\d$"),
    "date and time": (r"^May \d+, \d{4}, \d+:\d\d\s[AP]M$", r"^\d+ mai \d{4}.*\d\d:\d\d$"),
    "past": (r"^\d+ weeks ago$", r"^il y a \d+ semaines$"),
    "future": (r"^in \d+ hours$", r"^dans \d+ heures$"),
    "duration": (r"^\d+ hours, \d+ minutes$", r"^\d+\sheures et \d+\sminutes$"),
    "money, symbol": (r"^\$[\d,]+\.\d\d$", r"^[\d\s]+,\d\d\s\$US$"),
    "money, code": (r"^EUR\s[\d,]+\.\d\d$", r"^[\d\s]+,\d\d\sEUR$"),
    "money, words": (r"^[\d,]+ Swiss francs$", r"^[\d\s]+ francs suisses$"),
    "money, compact": (r"^€[\d.]+B$", r"^[\d,]+\sMd\s€$"),
    "length": (r"^[\d.,]+ kilometers?$", r"^[\d\s,]+\skilomètres?$"),
    "temperature": (r"^[\d.,]+°F$", r"^[\d\s,]+\s°F$"),
    "digital": (r"^[\d.,]+ MB$", r"^[\d\s,]+\sMo$"),
    "narrow unit": (r"^[\d.,]+km$", r"^[\d\s,]+km$"),
    "number": (r"^-?[\d,]+\.\d+$", r"^-?[\d\s]+,\d+$"),
    "large number": (r"^[\d.]+ billion$", r"^[\d,]+ milliards?$"),
    "percentage": (r"^[\d.]+%$", r"^[\d,]+\s%$"),
    "sentence": (r"^The train to London leaves at .*M\.$", r"^Le train pour Londres part à \d\d:\d\d\.$"),
}


@pytest.fixture(scope="module")
def split() -> tuple[list[Pair], list[Pair]]:
    return cldr.generate_corpus(6_000, 300, seed=7)


@pytest.fixture(scope="module")
def pairs(split: tuple[list[Pair], list[Pair]]) -> list[Pair]:
    return [*chain(*split)]


def test_same_seed_same_corpus() -> None:
    assert cldr.generate_corpus(200, 20, seed=3) == cldr.generate_corpus(200, 20, seed=3)
    assert cldr.generate_corpus(200, 20, seed=3) != cldr.generate_corpus(200, 20, seed=4)


def test_requested_sizes_and_unique_sources(split: tuple[list[Pair], list[Pair]]) -> None:
    train, test = split
    assert (len(train), len(test)) == (6_000, 300)
    assert len({pair.source for pair in chain(train, test)}) == 6_300


def test_source_determines_target() -> None:
    """Sampled often and not deduplicated, so that forms sharing their English would collide."""
    rng = Random(0)
    french: dict[str, str] = {}
    for kind in cldr.GENERATOR_WEIGHTS:
        for _ in range(300):
            fact = kind(rng)
            text = fact(cldr.FRENCH)
            assert french.setdefault(fact(cldr.ENGLISH), text) == text


@pytest.mark.parametrize("number", [1, 1.5, 2, 1_000])
def test_no_two_forms_of_units_share_their_english(number: float) -> None:
    forms = [(unit, length) for length, names in cldr._unambiguous_units().items() for unit in names]
    texts = {cldr.units.format_unit(number, *form, locale=cldr.ENGLISH) for form in forms}
    assert len(texts) == len(forms) > 80


def test_texts_are_short_lines(pairs: list[Pair]) -> None:
    texts = [*chain(*pairs)]
    assert all(text == text.strip() and len(text.splitlines()) == 1 for text in texts)
    assert 12 < sum(map(len, texts)) / len(texts) < 25
    assert not any(".." in text or "{" in text for text in texts)


@pytest.mark.parametrize(("english", "french"), LANDMARKS.values(), ids=LANDMARKS)
def test_every_generator_occurs_in_its_form(pairs: list[Pair], english: str, french: str) -> None:
    matching = [pair for pair in pairs if re.search(english, pair.source)]
    assert matching
    assert [pair for pair in matching if not re.search(french, pair.target)] == []


def test_french_sentences_avoid_the_first_of_the_month(pairs: list[Pair]) -> None:
    assert not [pair.target for pair in pairs if re.search(r"\b(le|du) \w+ 1 \w+ \d{4}", pair.target)]


def test_dates_against_french_written_by_hand(pairs: list[Pair]) -> None:
    assert full_date("Friday, March 14, 2025") == "vendredi 14 mars 2025"
    assert_translated(pairs, r"[A-Z]\w+day, [A-Z]\w+ \d+, \d{4}", full_date)
    assert_translated(pairs, r"\d+/\d+/\d{4}", lambda text: f"{datetime.strptime(text, '%m/%d/%Y'):%d/%m/%Y}")


def test_times_against_the_clock(pairs: list[Pair]) -> None:
    assert clock("12:07\u202fAM") == "00:07"
    assert clock("3:07\u202fPM") == "15:07"
    assert_translated(pairs, r"\d+:\d\d\s[AP]M", clock)


def test_numbers_against_french_signs(pairs: list[Pair]) -> None:
    assert_translated(pairs, r"-?[\d,]+(\.\d+)?", lambda text: text.translate(FRENCH_SIGNS))


def test_some_units_and_cities() -> None:
    assert in_both(cldr.make_quantity_generator("mass-kilogram", 1, 1)(Random())) == ("1 kilogram", "1 kilogramme")
    assert in_both(cldr.make_quantity_generator("length-inch", 12, 12)(Random())) == ("12 inches", "12 pouces")
    cities = {in_both(cldr.city(Random(seed))) for seed in range(300)}
    assert len(cities) == len(cldr.TIME_ZONES)
    assert cities >= {("London", "Londres"), ("Mexico City", "Mexico"), ("Tokyo", "Tokyo")}


def test_written_files_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()  # a folder that is there may be filled
    cldr.write_corpus(tmp_path / "new", n_train=50, n_test=10, seed=5)
    files = {path.name: str(path) for path in (tmp_path / "new").iterdir()}
    assert sorted(files) == ["test.en", "test.fr", "train.en", "train.fr"]
    train, test = cldr.generate_corpus(50, 10, seed=5)
    assert list(read_pairs([files["train.en"], files["train.fr"]])) == train
    assert list(read_pairs([files["test.en"], files["test.fr"]])) == test


def test_without_babel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(MissingExtra, match=r"pip install 'regard\[demo\]'"):
        runpy.run_path(cldr.__file__)


def assert_translated(pairs: list[Pair], english: str, expected: Callable[[str], str]) -> None:
    """Check that every pair whose English has this form is as expected but for spaces, and that there are some."""
    matching = [pair for pair in pairs if re.fullmatch(english, pair.source)]
    assert len(matching) > 20
    assert [pair for pair in matching if plain(pair.target) != plain(expected(pair.source))] == []


def full_date(english: str) -> str:
    day = datetime.strptime(english, "%A, %B %d, %Y")
    return f"{WEEKDAYS[day.weekday()]} {day.day} {MONTHS[day.month - 1]} {day.year}"


def clock(english: str) -> str:
    return f"{datetime.strptime(plain(english), '%I:%M %p'):%H:%M}"


def in_both(fact: cldr.Phrase) -> tuple[str, str]:
    return plain(fact(cldr.ENGLISH)), plain(fact(cldr.FRENCH))


def plain(text: str) -> str:
    """Return the text with plain spaces, because CLDR's choice of spaces changes with its versions."""
    return " ".join(text.split())
