"""Features of positions in a text where a word may begin: n-grams, affixes and shapes of the surrounding characters.

A chunk is a run of characters without white space. Called by word_segmenter.py to segment, and by segmenter_training.py
to learn; a feature is a short text, for which a classifier has a weight for each class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple
from unicodedata import category

from regard.text.words import JOINERS, find_words

MAX_AFFIX = 12
"""Characters of a chunk before or after a position that form one feature, at most."""
NEAR = 3
"""The distance from the ends of a chunk, in characters, within which the adjacent chunks matter."""
MAX_SHAPE = 8
"""Characters of the shape of a whole chunk, with runs of one class counted once; all longer ones are alike."""

CHUNK_REGEX = re.compile(r"\S+")
_LINK_REGEX = re.compile(r"(?i)[a-z]{2,9}://|www\.|\.(?:com|net|org|edu|gov|html?)\b")
_RUN_REGEX = re.compile(r"(.)\1+")
_APOSTROPHES = str.maketrans("’ʼ", "''")
_LETTERS_REGEX = re.compile("[^Aaom]*([Aaom]+)[^Aaom]*")
SPLIT_BY_DEFAULT, NOT_SPLIT_BY_DEFAULT = "1", "0"
ZERO_WIDTH_JOINER = "\u200d"


class _ShapeTable(dict[int, int]):
    """Maps letters, digits, marks and symbols to one character for each class; punctuation stays."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        self[code] = ord(_shape_of(character))
        return self[code]


def _shape_of(character: str) -> str:
    if character in JOINERS:
        return "m"
    match category(character):
        case "Lu" | "Lt":
            return "A"
        case "Ll":
            return "a"
        case "Lo" | "Lm":
            return "o"
        case "Nd" | "Nl" | "No":
            return "0"
        case "Mn" | "Mc" | "Me":
            return "m"
        case "So" | "Cn" | "Co":
            return "*"
    return character


_SHAPES = _ShapeTable()


def shape(text: str) -> str:
    """Return the class of each character."""
    return text.translate(_SHAPES)


def lowercase(text: str) -> str:
    """Return a text in lower case, with one kind of apostrophe and as many characters as before."""
    lower = text.lower()
    return (lower if len(lower) == len(text) else text).translate(_APOSTROPHES)


class Chunk(NamedTuple):
    """A run of characters without white space, and the classes of the nearest characters before and after it."""

    text: str
    before: str
    after: str


def find_chunks(text: str) -> Iterator[tuple[int, Chunk]]:
    """Yield the chunks of a text, each with the position of its first character."""
    matches = list(CHUNK_REGEX.finditer(text))
    last = len(matches) - 1
    for number, match in enumerate(matches):
        before = shape(text[matches[number - 1].end() - 1]) if number else ""
        after = shape(text[matches[number + 1].start()]) if number < last else ""
        yield match.start(), Chunk(match[0], before, after)


class ChunkFeatures:
    """The features of every position in a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk, self.lower, self.shape = chunk, lowercase(chunk.text), shape(chunk.text)
        self._padded, self._padded_shape = f"\n\n\n{self.lower}\n\n\n", f"\n\n\n{self.shape}\n\n\n"

    @cached_property
    def _kind(self) -> str:
        """The kind of the chunk: a link, an address, or neither."""
        return "link" if _LINK_REGEX.search(self.lower) else "@" if "@" in self.lower else ""

    @cached_property
    def _outline(self) -> str:
        """The shape of the whole chunk, each run of a class as one."""
        collapsed = _RUN_REGEX.sub(r"\1", self.shape)
        return collapsed if len(collapsed) <= MAX_SHAPE else "long"

    @cached_property
    def _default_starts(self) -> frozenset[int]:
        return frozenset(span.start for span in find_words(self.chunk.text))

    @cached_property
    def letters(self) -> tuple[int, int] | None:
        """The span of the letters of a chunk that is one run of them, with punctuation around."""
        match = _LETTERS_REGEX.fullmatch(self.shape)
        return match.span(1) if match else None

    def default_split(self, position: int) -> str:
        """Return the feature that `find_words` begins a word here, or not."""
        return SPLIT_BY_DEFAULT if position in self._default_starts else NOT_SPLIT_BY_DEFAULT

    def splittable(self, position: int) -> bool:
        """Return True if a word may begin here: not at a combining mark or joiner, nor after a zero-width joiner."""
        return self.shape[position] != "m" and self.chunk.text[position - 1] != ZERO_WIDTH_JOINER

    def window_features(self, position: int, *, is_known: bool = True) -> list[str]:
        """Return the features of a position; the whole chunk is one if it `is_known`: seen in more than one example."""
        chunk, n, low = self.chunk, len(self.lower), self.lower
        p, s, i = self._padded, self._padded_shape, position + 3
        pair = s[i - 1 : i + 1]
        features = [
            self.default_split(position),
            f"{self.default_split(position)}{pair}",
            f"a{p[i - 1]}",
            f"b{p[i - 2 : i]}",
            f"c{p[i - 3 : i]}",
            f"d{p[i]}",
            f"e{p[i : i + 2]}",
            f"f{p[i : i + 3]}",
            f"g{p[i - 1 : i + 1]}",
            f"h{p[i - 1 : i + 2]}",
            f"i{p[i - 2 : i + 1]}",
            f"j{p[i - 2 : i + 2]}",
            f"k{pair}",
            f"l{s[i - 2 : i + 2]}",
            f"m{s[i - 3 : i + 3]}",
            f"n{pair}{self._outline}",
            f"A{pair}{self._kind}",
        ]
        if position <= MAX_AFFIX:
            features += (f"s{low[:position]}", f"t{self.shape[:position]}")
        if n - position <= MAX_AFFIX:
            features += (f"u{low[position:]}", f"v{self.shape[position:]}")
        if n - position <= NEAR:
            features += (f"w{chunk.after}\n{low[position:]}", f"x{chunk.after}\n{p[i - 3 :]}")
        if position < NEAR:
            features.append(f"y{chunk.before}\n{low[: position + 1]}")
        if is_known:
            features += (f"z{position}\n{low}", f"Z{position}{chunk.after}\n{low}")
        return features

    def history_features(self, position: int, word_start: int, before: int) -> list[str]:
        """Return the features that depend on where the current word began, and on the class of the position before."""
        pair, word = self._padded_shape[position + 2 : position + 4], self.lower[word_start:position]
        features = [f"o{before}{pair}", f"p{word[:4]}\n{pair}", f"q{min(4, position - word_start)}{pair}"]
        if position - word_start <= MAX_AFFIX:
            features.append(f"r{word}\n{self.lower[position]}")
        return features


def join_features(before: str, chunk: str, after: str, is_joined: bool) -> list[str]:
    """Return the features of white space between two chunks; `is_joined` if a word continues into the first of them."""
    left, right = lowercase(before), lowercase(chunk)
    left_shape, right_shape = _RUN_REGEX.sub(r"\1", shape(before)), _RUN_REGEX.sub(r"\1", shape(chunk))
    return [
        "",
        f"a{left}",
        f"b{right}",
        f"c{left}\n{right}",
        f"d{left_shape[-MAX_SHAPE:]}\n{right_shape[:MAX_SHAPE]}",
        f"e{left[-NEAR:]}\n{right[:NEAR]}",
        f"f{len(right) if right_shape[:1] == '0' else ''}{left_shape[-1:]}{right_shape[:1]}",
        f"g{is_joined}{left_shape[-1:]}{right_shape[:1]}",
        f"h{right}\n{lowercase(after)}",
    ]


def expansion_features(before: str, token: str, after: str) -> list[str]:
    """Return the features of a token that may be several words, given the tokens beside it."""
    left, own, right = lowercase(before), lowercase(token), lowercase(after)
    return [
        f"a{own}",
        f"b{own}\n{left}",
        f"c{own}\n{right}",
        f"d{own}\n{left[-NEAR:]}",
        f"e{own}\n{right[-NEAR:]}",
        f"f{own}\n{shape(token[:1])}{shape(after[:1])}",
        f"g{left[-NEAR:]}\n{right[-NEAR:]}",
    ]
