"""Prefetching: batches built ahead of the training step, in one background thread.

Only pins and moves batches, whatever they contain. The training loop and evaluation use it as
`with Prefetcher(batches, device) as prefetched: for batch, cursor in prefetched: ...`; leaving the block, also by an
exception, ends the thread.
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
    """Anything that can be pinned and moved to a device like a tensor."""

    def to(self: MovableT, device: torch.device, *, non_blocking: bool = False) -> MovableT: ...

    def pin_memory(self: MovableT) -> MovableT: ...


Batch = TypeVar("Batch", bound=Movable)
Metadata = TypeVar("Metadata")


@dataclass(frozen=True)
class _EndOfBatches:
    error: BaseException | None


class Prefetcher(Generic[Batch, Metadata]):
    """Iterator over pairs of a batch and its metadata (a cursor), a few ahead; errors of the thread are raised here."""

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
        while not isinstance(item := self._queue.get(), _EndOfBatches):
            self._free_slots.release()
            batch, metadata = item
            # moved here, not in the thread: on the stream of the consumer, and never during its graph capture
            yield batch.to(self._device, non_blocking=True), metadata
        self._queue.put(item)
        if item.error is not None:
            raise item.error

    def _produce(self) -> None:
        error: BaseException | None = None
        try:
            for batch, metadata in self._batches:
                self._queue.put((batch.pin_memory() if self._device.type == "cuda" else batch, metadata))
                self._free_slots.acquire()
                if self._stop_requested.is_set():
                    break
        except BaseException as caught:
            error = caught
        self._queue.put(_EndOfBatches(error))
