"""Continuous batching: a batch that is kept full, as sentences that are done make room for waiting ones.

    batcher = ContinuousBatcher(start, batch, n_slots=32)
    handles = batcher.submit(sources, max_lengths)          more can be submitted, and cancelled, at any time
    while not batcher.is_idle:
        batcher.step()                                      one token of each sentence in the batch
        for handle, hypotheses in batcher.take_finished(): ...

What is found for a sentence does not depend on the others, apart from rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch

from regard.generate.decoding_batch import DecodingBatch, Finished

REFILL_FRACTION = 8
"""A batch is refilled when a part of it is free, one in so many slots: encoding one sentence at a time is slow."""


class _Waiting(NamedTuple):
    """A sentence that waits; ids as the model reads them."""

    handle: int
    source: Sequence[int]
    max_length: int


class ContinuousBatcher:
    """Decodes any number of sentences, at most `n_slots` at a time; one thread at a time may use it.

    `start` encodes sources and returns the decoder state of them alone. `make_batch` returns a batch with room for
    sources and results of given lengths; it is called when the one in use has none for the next sentence.
    """

    def __init__(
        self,
        start: Callable[[Sequence[Sequence[int]]], Any],
        make_batch: Callable[[int, int], DecodingBatch],
        n_slots: int,
    ) -> None:
        self._start, self._make_batch, self._n_slots = start, make_batch, n_slots
        self._batch: DecodingBatch | None = None
        self._finished: Finished = []
        self._handles = count()
        self._waiting: list[_Waiting] = []  # the last is the next

    @property
    def n_waiting(self) -> int:
        """The number of sentences that are not yet being decoded."""
        return len(self._waiting)

    @property
    def n_active(self) -> int:
        """The number of sentences being decoded."""
        return 0 if self._batch is None else self._batch.n_active

    @property
    def is_idle(self) -> bool:
        """Every sentence is done, or cancelled."""
        return not self._waiting and not self.n_active

    def submit(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[int]:
        """Add sentences and return their handles; the longest of them come first, after what waits already."""
        added = [_Waiting(next(self._handles), *each) for each in zip(sources, max_lengths, strict=True)]
        self._waiting = sorted(added, key=lambda each: (len(each.source), each.max_length)) + self._waiting
        return [each.handle for each in added]

    @torch.inference_mode()
    def cancel(self, handle: int) -> None:
        """Forget a sentence, whether it waits or is being decoded; one that is done stays so."""
        self._waiting = [each for each in self._waiting if each.handle != handle]
        if self._batch is not None:
            self._batch.cancel(handle)

    @torch.inference_mode()
    def step(self) -> None:
        """Let waiting sentences join where there is room, and write one more token of each sentence in the batch."""
        self._admit()
        if self._batch is not None:
            self._batch.advance()
            self._finished += self._batch.take_finished()

    def take_finished(self) -> Finished:
        """Return what was finished since the last call, as handles with hypotheses, best first."""
        finished, self._finished = self._finished, []
        return finished

    def _admit(self) -> None:
        joining = self._take_waiting()
        if joining:
            assert self._batch is not None
            state = self._start([each.source for each in joining])
            handles, max_lengths = [each.handle for each in joining], [each.max_length for each in joining]
            self._batch.admit(handles, state, max_lengths)

    def _take_waiting(self) -> list[_Waiting]:
        """Return the sentences that join now: as many as there is room for, if there is enough."""
        n_free = self._n_slots - self.n_active
        if not self._waiting or n_free < min(max(self._n_slots // REFILL_FRACTION, 1), len(self._waiting)):
            return []
        first = self._waiting[-1]
        if not self._fits(first):
            if self.n_active:
                return []  # until the others are done
            self._batch = self._make_batch(len(first.source), first.max_length)
        joining: list[_Waiting] = []
        while self._waiting and len(joining) < n_free and self._fits(self._waiting[-1]):
            joining.append(self._waiting.pop())
        return joining

    def _fits(self, sentence: _Waiting) -> bool:
        return self._batch is not None and self._batch.fits(len(sentence.source), sentence.max_length)
