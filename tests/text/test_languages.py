"""Entries of data that name languages, and the directions of a translator."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import ConfigError, DataError, InputError
from regard.text.languages import Direction, Directions, parse_direction, parse_language_entry
from regard.text.multilingual import expand_row, list_directions, read_multilingual_rows

SIX = Directions.of_task(["en-fr", "fr-en", "en-de", "de-en", "de-fr", "fr-de"], "", "")
ONE = Directions.of_task([], "en", "fr")


def test_entries_name_languages_after_their_path(tmp_path: Path) -> None:
    assert parse_language_entry("x.tsv:en=1,de=2,fr=title") == ("x.tsv", ("1", "2", "title"), ("en", "de", "fr"), False)
    assert parse_language_entry("x.tsv:en=1>zh_Hans=2") == ("x.tsv", ("1", "2"), ("en", "zh_Hans"), True)
    assert parse_language_entry("a/train.en:en") == ("a/train.en", (), ("en",), False)
    assert [parse_language_entry(each) for each in ("x.tsv", "x.tsv:1,2", "x.tsv:en,fr", "train.en", "a:1/b")] == [
        None
    ] * 5
    (tmp_path / "odd:en").write_text("x\n")
    assert parse_language_entry(str(tmp_path / "odd:en")) is None
    for wrong in ("en=1,en=2", "en=,fr=2", "e=1,fr=2", "en=1,fr"):
        with pytest.raises(DataError, match=r"expected a column for each language, as in x\.tsv:en=1,fr=2"):
            parse_language_entry(f"x.tsv:{wrong}")


def test_rows_come_once_with_their_languages(tmp_path: Path) -> None:
    table = tmp_path / "x.tsv"
    table.write_text("one\teins\tun\ntwo\tzwei\tdeux\n")
    for name, word in (("a.en", "yes"), ("a.fr", "oui")):
        (tmp_path / name).write_text(f"{word}\n")
    data = [f"{table}:fr=3,en=1", f"{table}:en=1>de=2", f"{tmp_path / 'a.en'}:en", f"{tmp_path / 'a.fr'}:fr"]
    rows = list(read_multilingual_rows(data, (), None, skip_empty=False))
    assert rows[0] == ("un", "one", "fr,en")
    assert rows[2:] == [("one", "eins", "en>de"), ("two", "zwei", "en>de"), ("yes", "oui", "en,fr")]
    assert list(expand_row(rows[0])) == [(("fr", "en"), "un", "one"), (("en", "fr"), "one", "un")]
    assert list(expand_row(rows[2])) == [(("en", "de"), "one", "eins")]
    assert list(map(str, list_directions(data, None))) == ["fr-en", "en-fr", "en-de"]
    default = Direction("de", "en")
    assert next(read_multilingual_rows([str(table)], ("2", "1"), default, skip_empty=False)) == ("eins", "one", "de>en")
    with pytest.raises(DataError, match="of which languages"):
        list_directions([str(table)], None)


def test_directions_by_name() -> None:
    assert parse_direction("pt_BR-en") == ("pt_BR", "en")
    for wrong in ("enfr", "en-en", "en-", "en-fr-de", "1-2"):
        with pytest.raises(ConfigError, match="is no direction; expected two language codes"):
            parse_direction(wrong)


def test_target_language_is_asked_for_or_known() -> None:
    assert (SIX.choose_target("fr"), SIX.choose_target("fr", "de"), ONE.choose_target(), ONE.choose_target("fr")) == (
        *("fr",) * 4,
    )
    assert SIX.source_tokens("de") == [">>de<<"]
    assert ONE.source_tokens("fr") == []
    many_to_one = Directions.of_task(["en-fr", "de-fr"], "", "")
    assert many_to_one.source_tokens("") == [">>fr<<"]
    assert Directions.of_task(["en-fr", "de-en", "de-fr"], "", "").choose_target(source="en") == "fr"
    for directions, asked, message in [
        (SIX, ("", ""), "into which language"),
        (SIX, ("frr", ""), "did you mean 'fr'"),
        (SIX, ("es", ""), "known: de, en, fr"),
        (ONE, ("de", ""), "--to de: this model translates en-fr"),
        (many_to_one, ("fr", "en_GB"), "no direction en_GB-fr; this model translates en-fr, de-fr"),
        (Directions.of_task([], "", ""), ("fr", ""), "languages are not recorded"),
    ]:
        with pytest.raises(InputError, match=message):
            directions.choose_target(*asked)
