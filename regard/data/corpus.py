"""From examples of text to token stores: counting, holding out, encoding.

An example is a tuple of texts, one per column; what the columns mean is the task's business. `training/prepare.py`
makes a `Corpus` and hands it to the task; readers are in text/, the files on disk in data/store.py.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import filterfalse, islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Integer

from regard.data.columns import ColumnSpec, EncodedChunk
from regard.data.store import TokenStore, compute_fingerprint
from regard.errors import ConfigError
from regard.progress import track, track_file_reading, warn
from regard.text.files import STDIN, check_readable, file_format

Example = tuple[str, ...]
"""The texts of one example, one for each column of the task."""

ENCODING_CHUNK_SIZE = 4096
"""Examples encoded at once."""

MAX_HELD_OUT = 1000
"""Examples kept for validation where no validation files are given, at most; never more than one in twenty."""

HELD_OUT_RATIO = 20
"""One in so many examples, or lines, is held out for validation."""

MIN_ROW_WIDTH = 8
"""Positions of the narrowest rows."""

MAX_TOKENIZER_EXAMPLES = 1_000_000
"""Examples a vocabulary is learned from, at most."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The recipe's ``[data]`` table."""

    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    skip_empty: bool = False
    max_length: int

    def __post_init__(self) -> None:
        if self.max_length < MIN_ROW_WIDTH:
            raise ConfigError(f"data.max_length = {self.max_length}; expected at least {MIN_ROW_WIDTH} tokens")


@dataclass(frozen=True)
class CorpusStatistics:
    """How much text there is: examples, words by white space in all columns, and a hash of each first text."""

    n_examples: int
    n_words: int
    hashes: Integer[np.ndarray, " N"]


def collect_statistics(examples: Iterable[Example], file_sizes: Mapping[Path, int] | None = None) -> CorpusStatistics:
    """Read everything once, from files of these sizes; also finds every fault of theirs before any work is done."""
    hashes = array("Q")
    n_words = 0
    with track_file_reading("reading", file_sizes) if file_sizes else nullcontext():
        for example in examples if file_sizes else track(examples, "reading"):
            hashes.append(_hash_example(example))
            n_words += sum(len(text.split()) for text in example)
    return CorpusStatistics(len(hashes), n_words, np.frombuffer(hashes, dtype=np.uint64))


def make_held_out_filter(statistics: CorpusStatistics, unit: str = "examples") -> Callable[[Example], bool]:
    """Which examples are kept for validation: a function of the first text, so equal sources stay together."""
    wanted = min(MAX_HELD_OUT, statistics.n_examples // HELD_OUT_RATIO)
    if wanted == 0:
        raise ConfigError(
            f"{unit}: only {statistics.n_examples}, too few to hold some out for validation; pass --valid with files"
        )
    limit = int(np.partition(statistics.hashes, wanted - 1)[wanted - 1])
    return lambda example: _hash_example(example) <= limit


def _hash_example(example: Example) -> int:
    return int.from_bytes(blake2b(example[0].encode(), digest_size=8).digest())


def slice_lines(examples: Iterable[Example], start: int, stop: int | None = None) -> Iterator[Example]:
    """Yield the documents cut down to the lines from `start` to `stop`, which are counted over all documents."""
    n_before = 0
    for (text,) in examples:
        lines = text.split("\n")
        end = len(lines) if stop is None else max(0, stop - n_before)
        if kept := lines[max(0, start - n_before) : end]:
            yield ("\n".join(kept),)
        n_before += len(lines)


@dataclass(frozen=True)
class RereadableTexts:
    """Texts that can be read any number of times, each time from their files."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


@runtime_checkable
class ExampleReader(Protocol):
    """What finds examples in files: a kind of task, or what it chooses; `unit` says what they are."""

    @property
    def unit(self) -> str: ...

    @property
    def examples_have_lines(self) -> bool:
        """Examples are documents of lines, of which the last can be held out where there are few documents."""
        ...

    def paths(self, data: Sequence[str]) -> list[Path]: ...

    def read_examples(self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]: ...


class Corpus:
    """The training and validation examples of a recipe; their text is read when asked for, any number of times."""

    def __init__(self, reader: ExampleReader, data: DataConfig, where: str) -> None:
        if not data.train:
            raise ConfigError(f'{where}: no training data; give files, or add train = ["..."] under [data]')
        self.reader, self.data = reader, data
        self.files = reader.paths([*data.train, *data.valid])
        if Path(STDIN) in self.files:
            raise ConfigError(f"{where}: training reads its data several times, so not from standard input; use a file")
        for file in self.files:
            check_readable(file)

    @cached_property
    def statistics(self) -> CorpusStatistics:
        """How much there is to learn from; to know it is to have read everything, so every fault has been found."""
        if self.data.valid:
            collect_statistics(self._read_examples(self.data.valid), self._file_sizes(self.data.valid))
        return collect_statistics(self._read_examples(self.data.train), self._file_sizes(self.data.train))

    def train_examples(self) -> Iterator[Example]:
        """What is learned from."""
        examples = self._read_examples(self.data.train)
        if self.data.valid:
            return examples
        if self._first_held_out_line is not None:
            return slice_lines(examples, 0, self._first_held_out_line)
        return filterfalse(self._is_held_out, examples)

    def valid_examples(self) -> Iterator[Example]:
        """What is validated on: files of its own, or examples held out."""
        if self.data.valid:
            return self._read_examples(self.data.valid)
        examples = self._read_examples(self.data.train)
        if self._first_held_out_line is not None:
            return slice_lines(examples, self._first_held_out_line)
        return filter(self._is_held_out, examples)

    def train_texts(self, *columns: int) -> RereadableTexts:
        """The training texts of these columns, from at most `SAMPLE` examples spread evenly over the corpus."""
        every = max(1, math.ceil(self.statistics.n_examples / MAX_TOKENIZER_EXAMPLES))
        return RereadableTexts(
            lambda: (example[i] for example in islice(self.train_examples(), 0, None, every) for i in columns)
        )

    def fingerprint(self, *parts: str) -> str:
        """Changes when the files or the way to read them do, or a part."""
        how = [list(self.data.train), list(self.data.valid), self.data.columns, self.data.skip_empty]
        return compute_fingerprint(self.files, *parts, repr(how))

    def _file_sizes(self, data: Sequence[str]) -> dict[Path, int] | None:
        """The bytes of files that are read from their start to their end; parquet is not."""
        files = self.reader.paths(data)
        if any(file_format(file) == "parquet" for file in files):
            return None
        return {file: file.stat().st_size for file in files}

    @cached_property
    def _first_held_out_line(self) -> int | None:
        """The line from which on text is held out, where there are too few documents to hold out whole ones."""
        n_documents = self.statistics.n_examples
        if not self.reader.examples_have_lines or n_documents >= HELD_OUT_RATIO:
            return None
        n_lines = sum(text.count("\n") + 1 for (text,) in self._read_examples(self.data.train))
        n_held_out = min(MAX_HELD_OUT, n_lines // HELD_OUT_RATIO)
        if n_held_out == 0:
            return None
        few, last = f"{self.reader.unit}: only {n_documents}", f"the last {n_held_out:,} of {n_lines:,} lines"
        warn(f"{few}; {last} are held out for validation; pass --valid with files to choose others")
        return n_lines - n_held_out

    @cached_property
    def _is_held_out(self) -> Callable[[Example], bool]:
        return make_held_out_filter(self.statistics, self.reader.unit)

    def _read_examples(self, data: Sequence[str]) -> Iterator[Example]:
        return self.reader.read_examples(data, self.data.columns, skip_empty=self.data.skip_empty)


@runtime_checkable
class ExampleEncoder(Protocol):
    """What turns examples into the entries of a store: a task."""

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
) -> TokenStore:
    """Encode the examples and keep their ids on disk; where a digest is expected, only ids that have it."""
    encoded = (encoder.encode(chunk) for chunk in chunk_examples(track(examples, "encoding", total)))
    return TokenStore.write(
        path,
        encoder.store_columns,
        encoded,
        fingerprint=fingerprint,
        expected_digest=expected_digest,
    )


def chunk_examples(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """The examples, a few thousand at a time."""
    source = iter(examples)
    while chunk := list(islice(source, ENCODING_CHUNK_SIZE)):
        yield chunk
