"""Languages: the directions of a translator, the token that names the target, and entries of data that name languages.

    europarl.tsv:en=1,de=2,fr=3      columns by language: all six directions
    europarl.tsv:en=1>fr=3           from the first language to each other one
    train.en:en train.fr:fr          files of lines: both directions
    news.en:en                       text in one language, for a teacher

A translator of several directions reads a token before the source that names the target language, ``>>fr<<``, as the
Marian models of OPUS-MT do. multilingual.py reads the entries; the task and the API ask `Directions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from regard.errors import ConfigError, DataError, InputError, did_you_mean
from regard.text.files import file_format

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(_[A-Za-z0-9]{2,8})*")
"""A language code, as in en, de, pt_BR or zh_Hans; a hyphen stands between the two of a direction."""

ONE_WAY = ">"
"""The separator of languages of which only the first is translated; of others it is a comma."""


def language_token(language: str) -> str:
    """Return the token before a source that is to be translated into a language."""
    return f">>{language}<<"


class Direction(NamedTuple):
    """A pair of languages, from which and into which is translated."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def parse_direction(text: str) -> Direction:
    """Return the direction of a text such as en-fr."""
    source, _, target = text.partition("-")
    if source == target or not (LANGUAGE.fullmatch(source) and LANGUAGE.fullmatch(target)):
        raise ConfigError(f"'{text}' is no direction; expected two language codes, as in en-fr or pt_BR-en")
    return Direction(source, target)


@dataclass(frozen=True)
class Directions:
    """The directions of a translator; a model that `is_tagged` reads the token of the target language."""

    known: tuple[Direction, ...]
    is_tagged: bool

    @classmethod
    def of_task(cls, directions: Sequence[str], source_lang: str, target_lang: str) -> Directions:
        """Return the directions that a ``[task]`` table names, or that of its two languages where both are recorded."""
        if directions:
            return cls(tuple(map(parse_direction, directions)), is_tagged=True)
        return cls((Direction(source_lang, target_lang),) if source_lang and target_lang else (), is_tagged=False)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """All languages, sorted."""
        return tuple(sorted({language for direction in self.known for language in direction}))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The languages that can be translated into, sorted."""
        return tuple(sorted({direction.target for direction in self.known}))

    def __str__(self) -> str:
        return ", ".join(map(str, self.known))

    def choose_target(self, target: str = "", source: str = "") -> str:
        """Return the language to translate into: the one asked for, or the only one; refuse one that is not known."""
        if source and not (target or len(self.targets) == 1):
            target = self._only_target_from(source)
        if target and not self.known:
            raise InputError("--to: this model has one direction, whose languages are not recorded; leave --to out")
        if not target and self.is_tagged and len(self.targets) > 1:
            raise InputError(f"into which language? name it with --to; this model translates {self}")
        chosen = target or (self.targets[0] if self.known else "")
        if target and target not in self.targets:
            raise InputError(f"--to {target}: this model translates {self}; {did_you_mean(target, self.targets)}")
        if source and Direction(source, chosen) not in self.known:
            raise InputError(f"no direction {source}-{chosen}; this model translates {self or 'unrecorded languages'}")
        return chosen

    def source_tokens(self, target: str) -> list[str]:
        """Return what stands before a source to be translated into a language: its token, where there are several."""
        chosen = self.choose_target(target)
        return [language_token(chosen)] if self.is_tagged else []

    def _only_target_from(self, source: str) -> str:
        targets = [direction.target for direction in self.known if direction.source == source]
        return targets[0] if len(targets) == 1 else ""


ONE_DIRECTION = Directions((), is_tagged=False)
"""Those of a model whose languages are not recorded."""


class LanguageEntry(NamedTuple):
    """An entry of data that names languages: a table with the column of each, or a file of lines in one."""

    path: str
    columns: tuple[str, ...]
    languages: tuple[str, ...]
    is_one_way: bool = False

    @property
    def tag(self) -> str:
        """The languages with their separator, which goes with each row."""
        return (ONE_WAY if self.is_one_way else ",").join(self.languages)


def parse_language_entry(entry: str) -> LanguageEntry | None:
    """Return an entry of data that names languages after its path; None for one that names none."""
    path, colon, ending = entry.rpartition(":")
    if not colon or Path(entry).exists():
        return None
    if file_format(path) == "text":
        is_named = LANGUAGE.fullmatch(ending) and (Path(path).suffix or Path(path).exists())
        return LanguageEntry(path, (), (ending,)) if is_named else None
    if "=" not in ending:
        return None
    is_one_way = ONE_WAY in ending
    parts = [part.partition("=") for part in ending.split(ONE_WAY if is_one_way else ",")]
    languages, columns = tuple(part[0] for part in parts), tuple(part[2] for part in parts)
    if len(set(languages)) < len(parts) or not all(map(LANGUAGE.fullmatch, languages)) or not all(columns):
        expected = f"a column for each language, as in {path}:en=1,fr=2, or {path}:en=1>fr=2 for one direction"
        raise DataError(path, f"languages '{ending}'; expected {expected}")
    return LanguageEntry(path, columns, languages, is_one_way)


def names_languages(entries: Iterable[str]) -> bool:
    """Return True if an entry of data names languages."""
    return any(parse_language_entry(entry) for entry in entries)


def directions_of_tag(tag: str) -> list[Direction]:
    """Return the directions of rows with these languages."""
    if ONE_WAY in tag:
        source, *targets = tag.split(ONE_WAY)
        return [Direction(source, target) for target in targets]
    return [Direction(*pair) for pair in permutations(tag.split(","), 2)]
