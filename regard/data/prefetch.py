"""Batches made ahead of the training step, in one background thread.

Knows nothing of what is in a batch but how to pin and move it. The training loop and evaluation use it as
`with Prefetch(batches, device) as ahead: for batch, cursor in ahead: ...`; leaving the block, however it is left,
ends the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch

MovableT = TypeVar("MovableT", bound="Movable")


@runtime_checkable
class Movable(Protocol):
    """What can be pinned and moved to a device, as a tensor can."""

    def to(self: MovableT, device: torch.device, *, non_blocking: bool = False) -> MovableT: ...

    def pin_memory(self: MovableT) -> MovableT: ...


Batch = TypeVar("Batch", bound=Movable)
Metadata = TypeVar("Metadata")


@dataclass(frozen=True)
class _EndOfBatches:
    error: BaseException | None


class Prefetcher(Generic[Batch, Metadata]):
    """Pairs of a batch and whatever goes with it (a cursor), a few ahead; an error of the thread is raised here."""

    def __init__(self, batches: Iterable[tuple[Batch, Metadata]], device: torch.device, n_ahead: int = 8) -> None:
        self._batches, self._device = batches, device
        self._queue: SimpleQueue[tuple[Batch, Metadata] | _EndOfBatches] = SimpleQueue()
        self._free_slots = threading.Semaphore(n_ahead - 1)
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="regard-prefetch", daemon=True)

    def __enter__(self) -> Prefetcher[Batch, Metadata]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_requested.set()
        self._free_slots.release()
        self._thread.join()

    def __iter__(self) -> Iterator[tuple[Batch, Metadata]]:
        while not isinstance(made := self._queue.get(), _EndOfBatches):
            self._free_slots.release()
            batch, note = made
            # moved here, not in the thread: on the stream of the consumer, and never during its graph capture
            yield batch.to(self._device, non_blocking=True), note
        self._queue.put(made)
        if made.error is not None:
            raise made.error

    def _produce(self) -> None:
        error: BaseException | None = None
        try:
            for batch, note in self._batches:
                self._queue.put((batch.pin_memory() if self._device.type == "cuda" else batch, note))
                self._free_slots.acquire()
                if self._stop_requested.is_set():
                    break
        except BaseException as caught:
            error = caught
        self._queue.put(_EndOfBatches(error))
