"""The corpus of a recipe: validation split, source weights, text for tokenizers, and encoding into token stores.

An example is a tuple of texts, one per column; the meaning of the columns is the task's. `training/prepare.py`
makes a `Corpus` and passes it to the task; readers are in text/, the files on disk in data/store.py. Text is streamed:
no memory grows with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, filterfalse
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

from regard.config import AppliesIf
from regard.data.columns import ColumnSpec, EncodedChunk, ScalarColumnSpec
from regard.data.corpus_statistics import (
    HELD_OUT_RATIO,
    MAX_HELD_OUT,
    CorpusStatistics,
    collect_statistics,
    count_bytes,
    make_held_out_filter,
)
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.progress import print_message, track, warn
from regard.ranges import Range, check_table
from regard.text.files import STDIN, check_readable, file_format
from regard.text.fingerprints import fingerprint_files

Example = tuple[str, ...]
"""The texts of one example, one for each column of the task."""

ENCODING_CHUNK_SIZE = 4096
"""Examples encoded at once, at most."""

ENCODING_CHUNK_BYTES = 1 << 21
"""Bytes of the examples encoded at once, from which no more are added; their ids take several times as much."""

MIN_ROW_WIDTH = 8
"""Positions of the narrowest rows."""

SET_COLUMN = "set"
"""The column of a store with the number of each example's source, where that matters."""

KEPT_SET = -1
"""The number of the source of examples that a translator was trained on before."""

MAX_TOKENIZER_BYTES = 1 << 26
"""Bytes of text that a tokenizer is trained on; of more text, examples spread evenly over it."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The recipe's ``[data]`` table.

    Translators may draw from several sources by their sizes to the power 1 / `temperature`, and repeat what they were
    trained on before: `keep`, which is then the fraction `keep_ratio` of an epoch, with `keep_valid` to score it.
    """

    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    skip_empty: bool = False
    weights: Annotated[tuple[int, ...], Range(1, 10_000)] = ()
    temperature: Annotated[float, Range(1.0, 1000.0), AppliesIf("task.name=translate")] = 1.0
    keep: Annotated[tuple[str, ...], AppliesIf("task.name=translate")] = ()
    keep_valid: Annotated[tuple[str, ...], AppliesIf("task.name=translate")] = ()
    keep_ratio: Annotated[float, Range(0.0, 1.0, excludes="most"), AppliesIf("task.name=translate")] = 0.5
    max_length: Annotated[int, Range(MIN_ROW_WIDTH, 1 << 20)]

    def __post_init__(self) -> None:
        check_table(self, "data")
        if self.keep_valid and not self.keep:
            raise ConfigError("data.keep_valid scores what data.keep holds; give both, or leave it out")

    @property
    def has_sets(self) -> bool:
        """True if the source of an example decides how often it is drawn."""
        return self.temperature > 1.0 or bool(self.keep)

    @property
    def all_entries(self) -> tuple[str, ...]:
        """The entries of all files."""
        return (*self.train, *self.valid, *self.keep, *self.keep_valid)

    def kept(self) -> DataConfig:
        """Return the data that is kept in mind, as the only data."""
        return replace(
            self, train=self.keep, valid=self.keep_valid, weights=(), temperature=1.0, keep=(), keep_valid=()
        )


def slice_lines(examples: Iterable[Example], start: int, stop: int | None = None) -> Iterator[Example]:
    """Yield the documents cut down to the lines from `start` to `stop`, which are counted over all documents."""
    n_before = 0
    for (text,) in examples:
        lines = text.split("\n")
        end = len(lines) if stop is None else max(0, stop - n_before)
        if kept := lines[max(0, start - n_before) : end]:
            yield ("\n".join(kept),)
        n_before += len(lines)


def sample_evenly(examples: Iterable[Example], fraction: float) -> Iterator[Example]:
    """Yield evenly spread examples, enough to have this fraction of the bytes read so far."""
    n_bytes = n_sampled = 0
    for example in examples:
        is_sampled = n_sampled <= fraction * n_bytes
        size = count_bytes(example) if fraction < 1 else 0
        n_bytes, n_sampled = n_bytes + size, n_sampled + size * is_sampled
        if is_sampled:
            yield example


@dataclass(frozen=True)
class RereadableTexts:
    """Texts that can be iterated any number of times, read from their files each time."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


@runtime_checkable
class ExampleReader(Protocol):
    """A reader of examples from files; `unit` names the examples in messages.

    Where `examples_have_lines`, they are documents, of which the last lines are held out if there are few documents.
    """

    @property
    def unit(self) -> str: ...

    @property
    def examples_have_lines(self) -> bool: ...

    def paths(self, data: Sequence[str]) -> list[Path]: ...

    def group_sources(self, data: Sequence[str]) -> list[list[str]]:
        """Return the entries of each source of examples: by default every entry is one."""
        return [[entry] for entry in data]

    def read_examples(self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]: ...


class Corpus:
    """The training and validation examples of a recipe; text is read lazily, any number of times.

    `recipe_data` is the table of the recipe where the files were found elsewhere, by the paths of `data`.
    """

    def __init__(
        self, reader: ExampleReader, data: DataConfig, where: str, recipe_data: DataConfig | None = None
    ) -> None:
        if not data.train:
            raise ConfigError(f'{where}: no training data; give files, or add train = ["..."] under [data]')
        self.reader, self.data, self._recipe_data = reader, data, recipe_data or data
        self.files = reader.paths(data.all_entries)
        self.kept = Corpus(reader, data.kept(), where) if data.keep else None
        if Path(STDIN) in self.files:
            raise ConfigError(f"{where}: training reads its data several times, so not from standard input; use a file")
        for file in self.files:
            check_readable(file)
        is_grouped = bool(data.weights) or data.temperature > 1.0
        self._sources = reader.group_sources(data.train) if is_grouped else [list(data.train)]
        self._weights = data.weights or (1,) * len(self._sources)
        if len(self._sources) != len(self._weights):
            names = ", ".join("+".join(source) for source in self._sources)
            problem = f"{len(self._weights)} data.weights for {len(self._sources)} sources ({names})"
            raise ConfigError(f"{where}: {problem}; give one for each file, or pair of files of lines")

    @cached_property
    def statistics(self) -> CorpusStatistics:
        """The statistics of the training data; computing them reads all data, so it raises every error in it."""
        if self.data.valid:
            collect_statistics(self._read_examples(self.data.valid), self._file_sizes(self.data.valid))
        if self.kept:
            _ = self.kept.statistics
        return collect_statistics(self._read_sources(), self._file_sizes(self.data.train))

    def train_examples(self) -> Iterator[Example]:
        """Return the training examples, each repeated by the weight of its source.

        Where the source matters (`DataConfig.has_sets`), the last text of an example is the number of its source.
        """
        divisor = math.gcd(*self._weights)
        repeats = [weight // divisor for weight in self._weights]
        if not self.data.has_sets:
            return self._exclude_held_out(self._read_sources(repeats))
        own = self._number_examples(repeats)
        is_mixed = self.kept is not None and self.data.keep_ratio > 0
        return chain(own, self.kept._number_examples([1], KEPT_SET)) if self.kept and is_mixed else own

    def _number_examples(self, repeats: Sequence[int], first: int = 0) -> Iterator[Example]:
        """Yield the training examples, each with the number of its source, from `first` on."""
        for number in range(len(self._sources)):
            chosen = [n if i == number else 0 for i, n in enumerate(repeats)]
            for example in self._exclude_held_out(self._read_sources(chosen)):
                yield (*example, str(first + number))

    def valid_examples(self) -> Iterator[Example]:
        """Return the validation examples: of the validation files, or held out; with sets, own ones and kept ones."""
        if not self.data.has_sets:
            return self._valid_examples()
        own = ((*example, "0") for example in self._valid_examples())
        kept = self.kept._valid_examples() if self.kept else ()
        return chain(own, ((*example, str(KEPT_SET)) for example in kept))

    def _valid_examples(self) -> Iterator[Example]:
        if self.data.valid:
            return self._read_examples(self.data.valid)
        if self._first_held_out_line is not None:
            return slice_lines(self._read_sources(), self._first_held_out_line)
        return filter(self._is_held_out, self._read_sources())

    def train_texts(self, *columns: int) -> RereadableTexts:
        """Return the training texts of these columns, of a sample of at most about `MAX_TOKENIZER_BYTES`."""
        return RereadableTexts(lambda: (example[i] for example in self._sample_examples() for i in columns))

    def train_texts_before_tag(self) -> RereadableTexts:
        """Return the training texts of all columns but the last, of such a sample."""
        return RereadableTexts(lambda: (text for example in self._sample_examples() for text in example[:-1]))

    def _sample_examples(self) -> Iterator[Example]:
        return sample_evenly(self._exclude_held_out(self._read_sources()), self._sampled_fraction)

    @cached_property
    def _sampled_fraction(self) -> float:
        """The fraction of the text that vocabularies are learned from; a message says so if it is not all of it."""
        n_bytes = self.statistics.n_bytes
        if n_bytes > MAX_TOKENIZER_BYTES:
            sizes = f"{MAX_TOKENIZER_BYTES / 1e6:,.0f} of {n_bytes / 1e6:,.0f} MB of text"
            print_message(f"the vocabulary is learned from {sizes}, spread evenly")
        return min(1.0, MAX_TOKENIZER_BYTES / max(1, n_bytes))

    def fingerprint(self, *parts: str) -> str:
        """Return a fingerprint of the files, the settings to read them with, and the parts."""
        data = self._recipe_data
        settings = [list(data.train), list(data.valid), data.columns, data.skip_empty]
        settings += [data.weights] if data.weights else []
        sets = (data.keep, data.keep_valid, data.keep_ratio > 0, data.temperature > 1.0)
        settings += [sets] if data.has_sets else []
        return fingerprint_files(self.files, *parts, repr(settings))

    def _file_sizes(self, data: Sequence[str]) -> dict[Path, int] | None:
        """Return the sizes of the files, if all are read sequentially; Parquet is not."""
        files = self.reader.paths(data)
        if any(file_format(file) == "parquet" for file in files):
            return None
        return {file: file.stat().st_size for file in files}

    @cached_property
    def _first_held_out_line(self) -> int | None:
        """The line from which text is held out if there are too few documents to hold out whole ones."""
        n_documents = self.statistics.n_examples
        if not self.reader.examples_have_lines or self.data.weights or n_documents >= HELD_OUT_RATIO:
            return None
        n_lines = sum(text.count("\n") + 1 for (text,) in self._read_sources())
        n_held_out = min(MAX_HELD_OUT, n_lines // HELD_OUT_RATIO)
        if n_held_out == 0:
            return None
        few, last = f"{self.reader.unit}: only {n_documents}", f"the last {n_held_out:,} of {n_lines:,} lines"
        warn(f"{few}; {last} are held out for validation; pass --valid with files to choose others")
        return n_lines - n_held_out

    def is_held_out(self, example: Example) -> bool:
        """Return True for a training example that is kept for validation; not for text that is held out by lines."""
        return not self.data.valid and self._is_held_out(example)

    @cached_property
    def _is_held_out(self) -> Callable[[Example], bool]:
        return make_held_out_filter(self.statistics, self.reader.unit)

    def _exclude_held_out(self, examples: Iterator[Example]) -> Iterator[Example]:
        if self.data.valid:
            return examples
        if self._first_held_out_line is not None:
            return slice_lines(examples, 0, self._first_held_out_line)
        return filterfalse(self._is_held_out, examples)

    def _read_sources(self, repeats: Sequence[int] | None = None) -> Iterator[Example]:
        """Yield the examples of the training sources, each source read on its own and as often as `repeats` says.

        A source always gives the same examples, also those that are held out: a reader may split little text otherwise
        than much.
        """
        for source, n_repeats in zip(self._sources, repeats or [1] * len(self._sources), strict=True):
            for _ in range(n_repeats):
                yield from self._read_examples(source)

    def _read_examples(self, data: Sequence[str]) -> Iterator[Example]:
        return self.reader.read_examples(data, self.data.columns, skip_empty=self.data.skip_empty)


class _SetEncoder:
    """An encoder whose examples end with the number of their source, which becomes a column of its own."""

    def __init__(self, encoder: ExampleEncoder) -> None:
        self._encoder = encoder
        self.store_columns = (*encoder.store_columns, ScalarColumnSpec(SET_COLUMN))

    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        return [*self._encoder.encode([each[:-1] for each in examples]), [int(each[-1]) for each in examples]]


def with_set_column(encoder: ExampleEncoder, data: DataConfig) -> ExampleEncoder:
    """Return the encoder of a corpus of this data: with the column of sources, where they matter."""
    return _SetEncoder(encoder) if data.has_sets else encoder


@runtime_checkable
class ExampleEncoder(Protocol):
    """An encoder of examples into the entries of a store: a task."""

    @property
    def store_columns(self) -> Sequence[ColumnSpec]: ...

    def encode(self, examples: Sequence[Example]) -> EncodedChunk: ...


def write_store(
    path: Path,
    examples: Iterable[Example],
    encoder: ExampleEncoder,
    *,
    fingerprint: str,
    expected_digest: str = "",
    total: int | None = None,
    chunk_bytes: int = ENCODING_CHUNK_BYTES,
) -> TokenStore:
    """Encode the examples into a store, `chunk_bytes` at a time; if a digest is expected, the ids must have it."""
    encoded = (encoder.encode(chunk) for chunk in chunk_examples(track(examples, "encoding", total), chunk_bytes))
    return TokenStore.write(
        path,
        encoder.store_columns,
        encoded,
        fingerprint=fingerprint,
        expected_digest=expected_digest,
    )


def chunk_examples(examples: Iterable[Example], chunk_bytes: int = ENCODING_CHUNK_BYTES) -> Iterator[list[Example]]:
    """Yield the examples in lists of a few thousand, or of fewer that have that many bytes."""
    chunk: list[Example] = []
    n_bytes = 0
    for example in examples:
        chunk.append(example)
        n_bytes += count_bytes(example)
        if len(chunk) >= ENCODING_CHUNK_SIZE or n_bytes >= chunk_bytes:
            yield chunk
            chunk, n_bytes = [], 0
    if chunk:
        yield chunk
