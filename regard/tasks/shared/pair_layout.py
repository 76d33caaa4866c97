"""The pairs of a translator in a token store: a source and a target column, or a column for each language.

    PairLayout        source, target                         an example is a row of the store
    DirectedLayout    text_de, text_en, text_fr, one_way     an example is a row in one of its directions

So a sentence is stored once, whatever the number of directions it is translated in; the token of the target language is
put before the source when a batch is built. `one_way` is the number of the only source language of a row, or -1.
tasks/translate.py calls this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from regard.data.batches import Seq2SeqBatch, build_seq2seq_batch
from regard.data.columns import Column, ColumnSpec, EncodedChunk, ScalarColumnSpec, TokenColumnSpec
from regard.data.corpus import SET_COLUMN, Example
from regard.data.order import Placement
from regard.data.packing import concatenate_ranges
from regard.data.store import TokenStore
from regard.predict.seq2seq_inputs import Seq2SeqSpecialTokens
from regard.text.languages import Direction, Directions, directions_of_tag, language_token
from regard.text.multilingual import split_tag
from regard.text.tokenizer import TokenizerPair

ONE_WAY_COLUMN = "one_way"
ALL_WAYS = -1


class StoredPair(NamedTuple):
    """The ids of a pair, without special tokens but with the token of the target language, and its direction."""

    source: list[int]
    target: list[int]
    direction: str = ""


@dataclass(frozen=True)
class PairLayout:
    """Pairs in one direction."""

    tokenizers: TokenizerPair
    special_tokens: Seq2SeqSpecialTokens

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        """The columns of the store."""
        sizes = len(self.tokenizers.source), len(self.tokenizers.target)
        return TokenColumnSpec("source", sizes[0]), TokenColumnSpec("target", sizes[1])

    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        """Return the entries of the columns."""
        source, target = zip(*examples, strict=True)
        sides = self.tokenizers.source.encode_batch(source), self.tokenizers.target.encode_batch(target)
        return [[[*self.special_tokens.prefix_ids, *ids] for ids in side] for side in sides]

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """Return the number of tokens plus one: ``<eos>`` ends the source, ``<sos>`` begins the target."""
        return store.lengths("source", "target", n_special_tokens=1)

    def sets(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        """Return the number of the source of each example."""
        return store.values(SET_COLUMN)

    def direction_numbers(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        """Return the number of the direction of each example."""
        return np.zeros(len(store), dtype=np.int64)

    def batch(self, store: TokenStore, placement: Placement) -> Seq2SeqBatch:
        """Return the examples of a placement, packed into rows."""
        return self._build(store["source"], store["target"], placement)

    def _build(self, source: Column, target: Column, placement: Placement) -> Seq2SeqBatch:
        special = self.special_tokens
        return build_seq2seq_batch(
            source,
            target,
            placement,
            pad_id=special.pad_id,
            sos_id=special.decoder_start_id,
            eos_id=special.eos_id,
        )

    def pair(self, store: TokenStore, item: int) -> StoredPair:
        """Return one example."""
        before = len(self.special_tokens.prefix_ids)
        source, target = (store[name][item].tolist()[before:] for name in ("source", "target"))
        return StoredPair(source, target)


class _Index(NamedTuple):
    """The row and the number of the direction of each example, and its lengths."""

    rows: Int[np.ndarray, " N"]
    numbers: Int[np.ndarray, " N"]
    lengths: Int[np.ndarray, "N sides"]


@dataclass(frozen=True)
class DirectedLayout(PairLayout):
    """Rows of texts in several languages, each row in all directions that the translator has."""

    directions: Directions

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        size = len(self.tokenizers.source)
        texts = (TokenColumnSpec(_column(language), size) for language in self.directions.languages)
        return (*texts, ScalarColumnSpec(ONE_WAY_COLUMN))

    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        """Return for each language its texts, empty where a row has none, and the only source of each row."""
        languages = self.directions.languages
        ids = iter(self.tokenizers.source.encode_batch(text for example in examples for text in example[:-1]))
        rows = [{language: next(ids) for language in split_tag(example[-1])} for example in examples]
        one_way = [self._only_source(example[-1]) for example in examples]
        return [*([row.get(language, []) for row in rows] for language in languages), one_way]

    def _only_source(self, tag: str) -> int:
        sources = {source for source, _ in directions_of_tag(tag)}
        return self.directions.languages.index(sources.pop()) if len(sources) == 1 else ALL_WAYS

    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return self._index(store).lengths

    def sets(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        numbers: Int[np.ndarray, " N"] = super().sets(store)[self._index(store).rows]
        return numbers

    def direction_numbers(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        return self._index(store).numbers

    def batch(self, store: TokenStore, placement: Placement) -> Seq2SeqBatch:
        source, target = self._gather(store, placement.items)
        return self._build(source, target, replace(placement, items=np.arange(len(placement.items))))

    def pair(self, store: TokenStore, item: int) -> StoredPair:
        source, target = self._gather(store, np.array([item]))
        direction = self.directions.known[int(self._index(store).numbers[item])]
        return StoredPair(source[0].tolist(), target[0].tolist(), str(direction))

    def _index(self, store: TokenStore) -> _Index:
        """Return the examples of a store, computed once: all rows of the first direction, of the second, ..."""
        key = ("directions", 0)
        if key not in store.cache:
            store.cache[key] = self._build_index(store)
        index: _Index = store.cache[key]
        return index

    def _build_index(self, store: TokenStore) -> _Index:
        rows = [np.flatnonzero(self._has(store, direction)).astype(np.int32) for direction in self.directions.known]
        lengths = [
            np.stack([store[_column(side)].lengths[chosen] for side in direction], axis=1)
            for direction, chosen in zip(self.directions.known, rows, strict=True)
        ]
        numbers = np.repeat(np.arange(len(rows), dtype=np.int16), [len(chosen) for chosen in rows])
        special = np.array([2, 1], dtype=np.int32)  # the language and <eos>, <sos>
        return _Index(np.concatenate(rows), numbers, np.concatenate(lengths) + special)

    def _has(self, store: TokenStore, direction: Direction) -> Bool[np.ndarray, " rows"]:
        one_way, source = store.values(ONE_WAY_COLUMN), self.directions.languages.index(direction.source)
        is_complete = (store[_column(direction.source)].lengths > 0) & (store[_column(direction.target)].lengths > 0)
        has: Bool[np.ndarray, " rows"] = is_complete & ((one_way == ALL_WAYS) | (one_way == source))
        return has

    def _gather(self, store: TokenStore, items: Int[np.ndarray, " items"]) -> tuple[Column, Column]:
        """Copy the sources, each after the token of its target language, and the targets of examples."""
        index = self._index(store)
        numbers, rows = index.numbers[items], index.rows[items]
        n_source, n_target = (index.lengths[items] - 1).T
        starts = np.cumsum(n_source) - n_source, np.cumsum(n_target) - n_target
        source = np.empty(n_source.sum(), dtype=np.int32)
        target = np.empty(n_target.sum(), dtype=np.int32)
        for number in np.unique(numbers):
            direction, chosen = self.directions.known[number], numbers == number
            source[starts[0][chosen]] = self.tokenizers.source.token_to_id(language_token(direction.target))
            _copy(store[_column(direction.source)], rows[chosen], source, starts[0][chosen] + 1)
            _copy(store[_column(direction.target)], rows[chosen], target, starts[1][chosen])
        return tuple(
            Column(ids, np.append(0, np.cumsum(lengths, dtype=np.int64)))
            for ids, lengths in ((source, n_source), (target, n_target))
        )  # type: ignore[return-value]


def _copy(
    column: Column,
    rows: Int[np.ndarray, " rows"],
    destination: Int[np.ndarray, " tokens"],
    starts: Int[np.ndarray, " rows"],
) -> None:
    """Copy the texts of rows to where each starts."""
    lengths = column.lengths[rows]
    destination[concatenate_ranges(starts, lengths)] = column.ids[concatenate_ranges(column.offsets[rows], lengths)]


def _column(language: str) -> str:
    return f"text_{language}"
