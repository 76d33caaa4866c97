"""Word segmentation of running text, learned from an annotated corpus by segmenter_training.py.

Three questions are asked, each only where the corpus leaves it open: does a word continue after white space
(``10 000``)? Does a token, or a further word of a token, begin at this character of a chunk (``do|n't``)? And does this
token consist of words that it does not spell (French ``des``: ``de`` and ``les``)? The weights are integers, so every
machine segments in the same way. tasks/tag.py stores the segmenter in the run directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from regard.disk import RESTORE, json_text, read_bytes, write_text
from regard.errors import CheckpointError
from regard.text.linear_classifier import Weights, classify
from regard.text.running_text import words_of_token
from regard.text.word_features import (
    Chunk,
    ChunkFeatures,
    expansion_features,
    find_chunks,
    join_features,
    lowercase,
)
from regard.text.words import Span, TextWord

SEGMENTER_FILE = "segmenter.json"

INSIDE, TOKEN, PART = 0, 1, 2
"""The classes of a character: inside a word, the first of a token, the first of a further word of a token."""
N_CLASSES = 3

MAX_CACHED_CHUNKS = 1 << 16
MAX_CACHED_CHARACTERS = 32


class Expansion(NamedTuple):
    """The forms of the words of a token that does not spell them, and whether it may also be a single word."""

    forms: tuple[str, ...]
    is_ambiguous: bool


@dataclass(frozen=True)
class WordSegmenter:
    """A learned segmenter.

    `joins`, `boundaries` and `expands` are the weights of the three questions. A run of letters is split only if
    `splits_letters`, or if it is in `split_runs`, as ``cannot`` is.
    """

    n_sentences: int
    boundaries: Weights
    splits_letters: bool = True
    split_runs: frozenset[str] = frozenset()
    joins: Weights = field(default_factory=dict)
    expansions: Mapping[str, Expansion] = field(default_factory=dict)
    expands: Weights = field(default_factory=dict)
    _cache: dict[Chunk, list[int]] = field(default_factory=dict, repr=False, compare=False)

    def save(self, directory: Path) -> None:
        """Write the segmenter into a run directory."""
        write_text(directory / SEGMENTER_FILE, json_text(self._tables()) + "\n")

    def _tables(self) -> dict[str, Any]:
        return {
            "n_sentences": self.n_sentences,
            "boundaries": self.boundaries,
            "splits_letters": self.splits_letters,
            "split_runs": sorted(self.split_runs),
            "joins": self.joins,
            "expansions": {surface: [each.is_ambiguous, *each.forms] for surface, each in self.expansions.items()},
            "expands": self.expands,
        }

    @classmethod
    def load_if_exists(cls, directory: Path) -> WordSegmenter | None:
        """Return the segmenter that `save` wrote; None if there is none, as in directories of earlier versions."""
        path = directory / SEGMENTER_FILE
        if not path.exists():
            return None
        try:
            return _parse_tables(json.loads(read_bytes(path).decode()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CheckpointError(f"{path}: damaged; {RESTORE}") from None

    def __call__(self, text: str) -> list[TextWord]:
        """Return the words of a text."""
        tokens = list(self._find_tokens(text))
        surfaces = [text[token.start : token.end] for token, _ in tokens]
        words = []
        for number, (token, starts) in enumerate(tokens):
            forms: Sequence[str] = [text[start:end] for start, end in pairwise([*starts, token.end])]
            if len(forms) == 1 and self.expansions:
                forms = self._expand(surfaces, number)
            words += words_of_token(text, token, forms)
        return words

    def _find_tokens(self, text: str) -> Iterator[tuple[Span, list[int]]]:
        """Yield the tokens of a text, each with the starts of the words that it spells."""
        chunks, is_joined = list(find_chunks(text)), False
        starts: list[int] = []
        end = 0
        for number, (chunk_start, chunk) in enumerate(chunks):
            is_joined = bool(starts and self.joins) and self._is_joined(chunks, number, is_joined)
            first = INSIDE if is_joined else TOKEN
            for position, kind in enumerate([first, *self._classify(chunk)], chunk_start):
                if kind == TOKEN and starts:
                    yield Span(starts[0], end if position == chunk_start else position), starts
                if kind == TOKEN:
                    starts = [position]
                elif kind == PART:
                    starts.append(position)
            end = chunk_start + len(chunk.text)
        if starts:
            yield Span(starts[0], end), starts

    def _is_joined(self, chunks: Sequence[tuple[int, Chunk]], number: int, is_joined: bool) -> bool:
        after = chunks[number + 1][1].text if number + 1 < len(chunks) else ""
        features = join_features(chunks[number - 1][1].text, chunks[number][1].text, after, is_joined)
        return classify(self.joins, features, 2) == 1

    def _classify(self, chunk: Chunk) -> list[int]:
        """Return the class of each character of a chunk but the first."""
        if chunk in self._cache:
            return self._cache[chunk]
        classes = self._find_classes(chunk)
        if len(chunk.text) <= MAX_CACHED_CHARACTERS and len(self._cache) < MAX_CACHED_CHUNKS:
            self._cache[chunk] = classes
        return classes

    def _find_classes(self, chunk: Chunk) -> list[int]:
        features, classes, word_start = ChunkFeatures(chunk), [TOKEN], 0
        positions = set(open_positions(features, self.splits_letters, self.split_runs))
        for position in range(1, len(chunk.text)):
            kind = INSIDE
            if position in positions:
                inputs = features.window_features(position) + features.history_features(
                    position, word_start, classes[-1]
                )
                kind = classify(self.boundaries, inputs, N_CLASSES)
            if kind != INSIDE:
                word_start = position
            classes.append(kind)
        return classes[1:]

    def _expand(self, surfaces: Sequence[str], number: int) -> Sequence[str]:
        """Return the forms of the words of a token that spells one."""
        surface = surfaces[number]
        expansion = self.expansions.get(surface) or self.expansions.get(lowercase(surface))
        if expansion is None or (expansion.is_ambiguous and not self._is_expanded(surfaces, number)):
            return [surface]
        return expansion.forms if surface in self.expansions else match_case(surface, expansion.forms)

    def _is_expanded(self, surfaces: Sequence[str], number: int) -> bool:
        padded = ["", *surfaces, ""]
        return classify(self.expands, expansion_features(*padded[number : number + 3]), 2) == 1


def _parse_tables(tables: Any) -> WordSegmenter:
    """Return the segmenter in these tables; raise an error that `load_if_exists` catches if they are damaged."""
    expansions = {
        surface: Expansion(tuple(forms), is_ambiguous)
        for surface, (is_ambiguous, *forms) in dict(tables["expansions"]).items()
    }
    if not all(each.forms and all(type(form) is str and form for form in each.forms) for each in expansions.values()):
        raise ValueError("expansions")
    if type(tables["splits_letters"]) is not bool or type(tables["n_sentences"]) is not int:
        raise ValueError("splits_letters")
    return WordSegmenter(
        tables["n_sentences"],
        _parse_weights(tables["boundaries"], N_CLASSES),
        tables["splits_letters"],
        frozenset(tables["split_runs"]),
        _parse_weights(tables["joins"], 2),
        expansions,
        _parse_weights(tables["expands"], 2),
    )


def _parse_weights(weights: dict[str, list[int]], n_classes: int) -> Weights:
    parsed = {feature: tuple(row) for feature, row in weights.items()}
    if not all(len(row) == n_classes and all(type(each) is int for each in row) for row in parsed.values()):
        raise ValueError("weights")
    return parsed


def match_case(surface: str, forms: Sequence[str]) -> Sequence[str]:
    """Return the forms of a token in lower case with the case of that token: all capitals, or a first one."""
    if surface.isupper() and len(surface) > 1:
        return [form.upper() for form in forms]
    return [forms[0][:1].upper() + forms[0][1:], *forms[1:]] if surface[:1].isupper() else forms


def open_positions(features: ChunkFeatures, splits_letters: bool, split_runs: frozenset[str]) -> Iterator[int]:
    """Yield the positions of a chunk that the weights decide on: a word cannot begin anywhere else."""
    start, end = features.letters or (0, 0)
    is_whole = bool(end) and not splits_letters and features.lower[start:end] not in split_runs
    for position in range(1, len(features.chunk.text)):
        if not (is_whole and start < position < end) and features.splittable(position):
            yield position
