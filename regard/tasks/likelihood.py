"""How likely a language model finds text: perplexity by token and by word, bits by character.

    perplexity           exp(-log p(text) / tokens)         bits per character   -log2 p(text) / characters
    word perplexity      exp(-log p(text) / words)          words are parted by white space

`log p(text)` is the sum over all tokens of all documents, the one that ends each document included, every one counted
once. A document is read in windows, each `stride` tokens after the one before; in a window after the first only the
last `stride` tokens count, so each sees at least ``window - stride`` tokens before it, where there are that many:

    window 4, stride 2     x0 x1 x2 x3                predicts  x1 x2 x3 x4
                                 x2 x3 x4 x5          predicts        .  .  x5 x6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import IGNORE, sentences_to_rows
from regard.data.buckets import by_tokens
from regard.metrics import perplexity
from regard.progress import track
from regard.text.documents import Stretch

AT_ONCE = {"cpu": 1 << 11, "cuda": 1 << 15}
"""Positions read at once."""

TOGETHER = 512
"""Windows of which those of like length are read together."""


class Window(NamedTuple):
    """Tokens from `start` to before `end` are read; of the tokens after each, those behind `done` count."""

    start: int
    end: int
    done: int


def sliding(n_predicted: int, width: int, stride: int) -> Iterator[Window]:
    """The windows over a document of which so many tokens are predicted, all but its first."""
    start = done = 0
    while done < n_predicted:
        end = min(start + width, n_predicted)
        yield Window(start, end, done)
        start, done = start + stride, end


@dataclass(frozen=True)
class Likelihood:
    """What was found, and over how much text."""

    nll: float
    documents: int
    tokens: int
    words: int
    characters: int
    window: int
    stride: int

    @property
    def loss(self) -> float:
        """Nats by token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll, self.tokens)

    @property
    def word_perplexity(self) -> float:
        return perplexity(self.nll, self.words)

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.characters


Sequences = Callable[[Sequence[Stretch]], list[list[int]]]
"""The tokens of stretches, each behind the one before it."""


def likelihood(
    model: Any, sequences: Sequences, stretches: Iterable[Stretch], width: int, stride: int, device: torch.device
) -> Likelihood:
    """Read all documents in windows and add up."""
    count = _Count(model, device)
    for document in track(_documents(sequences, stretches, count), "reading"):
        for window in sliding(len(document) - 1, width, stride):
            count.add(document[window.start : window.end + 1], window.done - window.start)
    count.read()
    return Likelihood(count.nll, count.documents, count.tokens, count.words, count.characters, width, stride)


def _documents(
    sequences: Sequences, stretches: Iterable[Stretch], count: _Count
) -> Iterator[Int[np.ndarray, " tokens"]]:
    """The tokens of each document, behind the token before documents."""
    parts: list[np.ndarray] = []
    source = iter(stretches)
    while some := list(islice(source, 16)):
        for stretch, ids in zip(some, sequences(some), strict=True):
            parts.append(np.array(ids[1:] if parts else ids, dtype=np.int32))
            count.words += _n_words(stretch)
            count.characters += len(stretch.text)
            if not stretch.more:
                count.documents += 1
                yield np.concatenate(parts)
                parts = []


def _n_words(stretch: Stretch) -> int:
    """Words that begin in a stretch: one that was cut is counted where it began."""
    cut = stretch.before and not stretch.before[-1].isspace() and not stretch.text[0].isspace()
    return len(stretch.text.split()) - bool(cut)


class _Count:
    """Sums over windows, which are read together with others of like length."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model, self.device = model, device
        self.nll, self.tokens, self.words, self.characters, self.documents = 0.0, 0, 0, 0, 0
        self._waiting: list[tuple[list[int], int]] = []

    def add(self, ids: Int[np.ndarray, " tokens"], known: int) -> None:
        """A window with the token after it; so many of the tokens it predicts are counted already."""
        self._waiting.append((ids.tolist(), known))
        if len(self._waiting) == TOGETHER:
            self.read()

    @torch.inference_mode()
    def read(self) -> None:
        """Read all windows that wait."""
        most = AT_ONCE.get(self.device.type, AT_ONCE["cpu"])
        for chosen in by_tokens([len(ids) - 1 for ids, _ in self._waiting], most):
            windows = [self._waiting[i] for i in chosen]
            rows = sentences_to_rows([ids[:-1] for ids, _ in windows], pad=0)
            following = torch.full(rows.ids.shape, IGNORE)
            for row, (ids, known) in zip(following, windows, strict=True):
                row[known : len(ids) - 1] = torch.tensor(ids[known + 1 :])
            loss = self.model.loss(rows.to(self.device), following.to(self.device))
            self.nll += float(loss.nll)
            self.tokens += int(loss.n_tokens)
        self._waiting.clear()
