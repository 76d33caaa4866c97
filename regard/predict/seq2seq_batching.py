"""Continuous batching of an encoder-decoder: how its sources are encoded, and which batch its sentences are decoded in.

On a GPU a Transformer decodes in a graphed batch. Its CUDA graph takes many steps' time to capture, so batches are kept
for later calls, by their capacities, which are rounded up so that few graphs serve all lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.batches import sentences_to_rows
from regard.generate import BeamSearchConfig, ContinuousBatcher, DecodingBatch, EagerBatch, GraphedBatch
from regard.models.interfaces import Seq2SeqModel
from regard.nn import RowProjector
from regard.predict.seq2seq_inputs import Ids, Seq2SeqSpecialTokens, start_decoder
from regard.predict.shortlist import ShortlistedState, make_shortlisted_step

MIN_CAPACITY = 32
"""The smallest number of tokens that a graphed batch has room for; others are powers of two."""

MAX_KEPT_BATCHES = 2
"""Graphed batches kept for later calls; each holds the memory of its KV caches."""


class _BatchKey(NamedTuple):
    """The search and the capacities of a graphed batch."""

    config: BeamSearchConfig
    n_slots: int
    n_source: int
    max_length: int


@dataclass
class _IdleBatches:
    """Graphed batches that nobody uses, the latest last; threads share it."""

    batches: list[tuple[_BatchKey, GraphedBatch]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def take(self, key: _BatchKey) -> GraphedBatch | None:
        """Remove and return a batch for this key."""
        with self.lock:
            for i, (each, batch) in enumerate(self.batches):
                if each == key:
                    del self.batches[i]
                    return batch
        return None

    def put_back(self, used: Sequence[tuple[_BatchKey, GraphedBatch]]) -> None:
        """Keep the latest batches."""
        with self.lock:
            self.batches = [*self.batches, *used][-MAX_KEPT_BATCHES:]


class Seq2SeqBatching:
    """Makes continuous batchers for a model; threads may share it.

    With a shortlist `allow` gives the tokens that the translation of each source may contain, (B, V).
    """

    def __init__(
        self,
        model: Seq2SeqModel,
        special_tokens: Seq2SeqSpecialTokens,
        device: torch.device,
        allow: Callable[[Sequence[Ids]], Tensor] | None = None,
    ) -> None:
        self.model, self.special_tokens, self.device = model, special_tokens, device
        self._idle = _IdleBatches()
        self._allow = allow

    @cached_property
    def _project(self) -> RowProjector:
        return self.model.softmax_embedding.make_row_projector(self.model.output_bias)

    @contextmanager
    def open_batcher(self, config: BeamSearchConfig, n_slots: int) -> Iterator[ContinuousBatcher]:
        """Yield a batcher of ids without special tokens; its batches are kept when it is done."""
        if self._allow is not None:
            shortlisted = EagerBatch(make_shortlisted_step(self.model), config, self.device)
            yield ContinuousBatcher(self._start_shortlisted, lambda n_source, max_length: shortlisted, n_slots)
            return
        if not (self.device.type == "cuda" and self.model.has_static_state):
            batch = EagerBatch(self.model.step, config, self.device)
            yield ContinuousBatcher(self.start, lambda n_source, max_length: batch, n_slots)
            return
        used: list[tuple[_BatchKey, GraphedBatch]] = []

        def make_batch(n_source: int, max_length: int) -> DecodingBatch:
            longest = self.model.config.n_positions - len(self.special_tokens.prefix_ids)
            n_wrapped = n_source + len(self.special_tokens.wrap_source(()))
            key = _BatchKey(config, n_slots, _round_up(n_wrapped), min(_round_up(max_length), longest))
            batch = self._idle.take(key) or self._make_graphed_batch(key)
            used.append((key, batch))
            return batch

        yield ContinuousBatcher(self.start, make_batch, n_slots)
        self._idle.put_back([each for each in used if not each[1].n_active])

    def _start_shortlisted(self, sources: Sequence[Ids]) -> ShortlistedState:
        """Return the decoder state of sources with the tokens that each may be continued by."""
        assert self._allow is not None
        return ShortlistedState(self.start(sources), self._allow(sources), self._project)

    def _make_graphed_batch(self, key: _BatchKey) -> GraphedBatch:
        make_state = partial(
            self.model.make_static_state,
            n_slots=key.n_slots,
            width=key.config.beam_width,
            n_source=key.n_source,
            max_length=key.max_length,
        )
        return GraphedBatch(
            self.model.step,
            make_state,
            key.config,
            n_slots=key.n_slots,
            n_source=key.n_source - len(self.special_tokens.wrap_source(())),
            max_length=key.max_length,
            device=self.device,
        )

    def start(self, sources: Sequence[Ids]) -> Any:
        """Return the decoder state of sources, from which a search starts."""
        wrapped = [self.special_tokens.wrap_source(ids) for ids in sources]
        rows = sentences_to_rows(wrapped, pad_id=self.special_tokens.pad_id)
        rows = rows.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else rows
        return start_decoder(self.model, rows.to(self.device), self.special_tokens)


def round_up_to_slots(n_sentences: int, batch_size: int) -> int:
    """Return the slots for that many sentences: the batch size, or fewer, a power of two."""
    return min(batch_size, 1 << max(n_sentences - 1, 0).bit_length())


def _round_up(n_tokens: int) -> int:
    return max(MIN_CAPACITY, 1 << (n_tokens - 1).bit_length())
