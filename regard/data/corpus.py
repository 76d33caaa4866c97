"""From examples of text to token stores: counting, holding out, encoding.

An example is a tuple of texts, one per column; what the columns mean is the task's business. `train/prepare.py`
calls this; readers are in text/, the files on disk in data/store.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Integer

from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.progress import track

Example = tuple[str, ...]
"""The texts of one example, one for each column of the task."""

CHUNK = 4096
"""Examples encoded at once."""

HELD_OUT = 1000
"""Examples kept for validation where no validation files are given, at most; never more than one in twenty."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The recipe's ``[data]`` table."""

    train: tuple[str, ...]
    valid: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    skip_empty: bool = False
    max_length: int

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise ConfigError(f"data.max_length = {self.max_length}; expected at least 8 tokens")


@dataclass(frozen=True)
class Survey:
    """How much text there is: examples, words by white space in all columns, and a hash of each first text."""

    n_examples: int
    n_words: int
    hashes: Integer[np.ndarray, " N"]


def survey(examples: Iterable[Example]) -> Survey:
    """Read everything once; this also finds every fault of the files before any work is done."""
    hashes = array("Q")
    n_words = 0
    for example in track(examples, "reading"):
        hashes.append(_hash(example))
        n_words += sum(len(text.split()) for text in example)
    return Survey(len(hashes), n_words, np.frombuffer(hashes, dtype=np.uint64))


def held_out(counted: Survey) -> Callable[[Example], bool]:
    """Which examples are kept for validation: a function of the first text, so equal sources stay together."""
    wanted = min(HELD_OUT, counted.n_examples // 20)
    if wanted == 0:
        raise ConfigError(
            f"only {counted.n_examples} examples: too few to hold some out for validation; pass --valid with files"
        )
    limit = int(np.partition(counted.hashes, wanted - 1)[wanted - 1])
    return lambda example: _hash(example) <= limit


def _hash(example: Example) -> int:
    return int.from_bytes(blake2b(example[0].encode(), digest_size=8).digest())


@runtime_checkable
class Encoder(Protocol):
    """What turns examples into ids: a task."""

    columns: ClassVar[tuple[str, ...]]

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]: ...


def write_store(
    path: Path,
    examples: Iterable[Example],
    encoder: Encoder,
    *,
    vocabulary: int,
    fingerprint: str,
    total: int | None = None,
) -> TokenStore:
    """Encode the examples and keep their ids on disk."""
    encoded = (encoder.encode(chunk) for chunk in chunks(track(examples, "encoding", total)))
    return TokenStore.write(path, encoder.columns, encoded, vocabulary=vocabulary, fingerprint=fingerprint)


def chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """The examples, a few thousand at a time."""
    source = iter(examples)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
