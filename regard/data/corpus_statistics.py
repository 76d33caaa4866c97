"""Statistics of a corpus, collected in one pass whose memory does not grow with the corpus, and its validation split.

corpus.py collects them before anything else, which raises every error in the text before any work is done.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from regard.errors import ConfigError
from regard.progress import track, track_file_reading
from regard.text.fingerprints import hash_text

MAX_HELD_OUT = 1000
"""Examples held out for validation if no validation files are given, at most; never more than one in twenty."""

HELD_OUT_RATIO = 20
"""One in this many examples, or lines, is held out for validation."""

HASH_BUFFER_FACTOR = 64
"""Hashes in memory before all but the smallest are dropped, in units of `MAX_HELD_OUT`."""


@dataclass(frozen=True)
class CorpusStatistics:
    """The number of examples, of words in all columns (split at white space), and of bytes in UTF-8.

    `hashes` are the smallest hashes of first texts, sorted: as many as may be held out.
    """

    n_examples: int
    n_words: int
    n_bytes: int
    hashes: Integer[np.ndarray, " N"]


def collect_statistics(
    examples: Iterable[Sequence[str]], file_sizes: Mapping[Path, int] | None = None
) -> CorpusStatistics:
    """Read all examples once, from files of these sizes; this also raises every error in them before any work."""
    hashes = array("Q")
    n_examples = n_words = n_bytes = 0
    with track_file_reading("reading", file_sizes) if file_sizes else nullcontext():
        for example in examples if file_sizes else track(examples, "reading"):
            hashes.append(hash_text(example[0]))
            if len(hashes) >= HASH_BUFFER_FACTOR * MAX_HELD_OUT:
                hashes = array("Q", _smallest(hashes).tolist())
            n_examples += 1
            n_words += sum(len(text.split()) for text in example)
            n_bytes += count_bytes(example)
    return CorpusStatistics(n_examples, n_words, n_bytes, _smallest(hashes))


def _smallest(hashes: array[int]) -> Integer[np.ndarray, " N"]:
    smallest: Integer[np.ndarray, " N"] = np.sort(np.frombuffer(hashes, dtype=np.uint64))[:MAX_HELD_OUT]
    return smallest


def count_bytes(example: Sequence[str]) -> int:
    """Return the bytes of the texts of an example in UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")) for text in example)


def make_held_out_filter(statistics: CorpusStatistics, unit: str = "examples") -> Callable[[Sequence[str]], bool]:
    """Return a predicate for the held-out examples: by the hash of the first text, so equal sources stay together."""
    n_held_out = min(MAX_HELD_OUT, statistics.n_examples // HELD_OUT_RATIO)
    if n_held_out == 0:
        raise ConfigError(
            f"{unit}: only {statistics.n_examples}, too few to hold some out for validation; pass --valid with files"
        )
    limit = int(statistics.hashes[n_held_out - 1])
    return lambda example: hash_text(example[0]) <= limit
