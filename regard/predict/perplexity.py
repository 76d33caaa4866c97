"""Perplexity of a language model per token and per word, and bits per character.

    perplexity           exp(-log p(text) / tokens)         bits per character   -log2 p(text) / characters
    word perplexity      exp(-log p(text) / words)          words are separated by white space

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
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import sentences_to_rows
from regard.data.buckets import batch_by_tokens
from regard.errors import InputError
from regard.metrics import perplexity
from regard.models.finite_outputs import check_finite
from regard.models.interfaces import CausalLM
from regard.nn import IGNORE
from regard.predict.document_tokenizer import DocumentTokenizer
from regard.predict.unknown_tokens import UnknownTokenCounter
from regard.progress import track
from regard.text.documents import DocumentChunk

BATCH_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 15}
"""Positions read at once."""

BUFFERED_WINDOWS = 512
"""Windows that are sorted by length into batches."""

UNKNOWN_TOKENS_NOTE = "; one token stands for all of these, so perplexity and bits are lower than they should be"


class ScoringWindow(NamedTuple):
    """Tokens from `start` up to `end` are read; of the tokens that they predict, those after `scored_until` count."""

    start: int
    end: int
    scored_until: int


def sliding_windows(n_predicted: int, window_length: int, stride: int) -> Iterator[ScoringWindow]:
    """Yield the sliding windows over a document with that many predicted tokens, which are all but its first."""
    start = done = 0
    while done < n_predicted:
        end = min(start + window_length, n_predicted)
        yield ScoringWindow(start, end, done)
        start, done = start + stride, end


@dataclass(frozen=True)
class PerplexityResult:
    """Perplexity and the amount of text it was measured on."""

    nll: float
    n_documents: int
    n_tokens: int
    n_words: int
    n_characters: int
    window: int
    stride: int

    @property
    def loss(self) -> float:
        """Return nats per token."""
        return self.nll / self.n_tokens

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll, self.n_tokens)

    @property
    def word_perplexity(self) -> float:
        return perplexity(self.nll, self.n_words)

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.n_characters


ChunkEncoder = Callable[[Sequence[DocumentChunk]], list[list[int]]]
"""The tokens of chunks, each after the last token of the one before it."""


def measure_perplexity(
    model: CausalLM,
    document_tokenizer: DocumentTokenizer,
    chunks: Iterable[DocumentChunk],
    device: torch.device,
    *,
    window: int,
    stride: int | None = None,
    backward: bool = False,
) -> PerplexityResult:
    """Return the perplexity of documents, read in windows, each `stride` tokens (by default `window`) after the last.

    A backward model reads each document from its end. A warning counts unknown characters.
    """
    stride = stride or window
    count, unknown = _LikelihoodAccumulator(model, device), UnknownTokenCounter(document_tokenizer.tokenizer)
    encode_chunks = partial(document_tokenizer.encode_chunks, encode=unknown.encode)
    for tokens in track(_encode_documents(encode_chunks, chunks, count), "reading"):
        document = tokens[::-1] if backward else tokens
        for each in sliding_windows(len(document) - 1, window, stride):
            count.add(document[each.start : each.end + 1], each.scored_until - each.start)
    count.flush()
    unknown.warn(UNKNOWN_TOKENS_NOTE)
    return PerplexityResult(
        count.nll, count.n_documents, count.n_tokens, count.n_words, count.n_characters, window, stride
    )


def check_window(window: int, stride: int | None, n_positions: int) -> None:
    """Refuse windows longer than the model's positions, and strides that would leave tokens out."""
    if not 1 <= window <= n_positions:
        raise InputError(f"window {window}: expected 1 to {n_positions:,}, the positions of this model")
    if stride is not None and not 1 <= stride <= window:
        raise InputError(f"stride {stride}: expected 1 to {window:,}, the window")


def _encode_documents(
    encode_chunks: ChunkEncoder, chunks: Iterable[DocumentChunk], accumulator: _LikelihoodAccumulator
) -> Iterator[Int[np.ndarray, " tokens"]]:
    """Yield the tokens of each document, after the document start token."""
    parts: list[np.ndarray] = []
    source = iter(chunks)
    while some := list(islice(source, 16)):
        for chunk, ids in zip(some, encode_chunks(some), strict=True):
            parts.append(np.array(ids[1:] if parts else ids, dtype=np.int32))
            accumulator.n_words += _count_words(chunk)
            accumulator.n_characters += len(chunk.text)
            if not chunk.continues:
                accumulator.n_documents += 1
                yield np.concatenate(parts)
                parts = []


def _count_words(chunk: DocumentChunk) -> int:
    """Return the number of words that begin in a chunk: a split word counts where it begins."""
    cut = chunk.preceding_text and not chunk.preceding_text[-1].isspace() and not chunk.text[0].isspace()
    return len(chunk.text.split()) - bool(cut)


class _LikelihoodAccumulator:
    """Sums over windows, which are read in batches of similar length."""

    def __init__(self, model: CausalLM, device: torch.device) -> None:
        self.model, self.device = model, device
        self.nll, self.n_tokens, self.n_words, self.n_characters, self.n_documents = 0.0, 0, 0, 0, 0
        self._pending: list[tuple[list[int], int]] = []

    def add(self, ids: Int[np.ndarray, " tokens"], n_scored: int) -> None:
        """Add a window with its next token; that many of its predicted tokens have been counted already."""
        self._pending.append((ids.tolist(), n_scored))
        if len(self._pending) == BUFFERED_WINDOWS:
            self.flush()

    @torch.inference_mode()
    def flush(self) -> None:
        """Read all windows that wait."""
        most = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])
        for chosen in batch_by_tokens([len(ids) - 1 for ids, _ in self._pending], most):
            windows = [self._pending[i] for i in chosen]
            rows = sentences_to_rows([ids[:-1] for ids, _ in windows], pad_id=0)
            labels = torch.full(rows.ids.shape, IGNORE)
            for row, (ids, known) in zip(labels, windows, strict=True):
                row[known : len(ids) - 1] = torch.tensor(ids[known + 1 :])
            loss = self.model.loss(rows.to(self.device), labels.to(self.device))
            self.nll += float(check_finite(loss.nll))
            self.n_tokens += int(loss.n_tokens)
        self._pending.clear()
