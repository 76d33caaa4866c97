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

Same = TypeVar("Same", bound="Movable")


@runtime_checkable
class Movable(Protocol):
    """What can be pinned and moved to a device, as a tensor can."""

    def to(self: Same, device: torch.device, *, non_blocking: bool = False) -> Same: ...

    def pin_memory(self: Same) -> Same: ...


Batch = TypeVar("Batch", bound=Movable)
Note = TypeVar("Note")


@dataclass(frozen=True)
class _End:
    error: BaseException | None


class Prefetch(Generic[Batch, Note]):
    """Pairs of a batch and whatever goes with it (a cursor), a few ahead; an error of the thread is raised here."""

    def __init__(self, batches: Iterable[tuple[Batch, Note]], device: torch.device, ahead: int = 8) -> None:
        self._batches, self._device = batches, device
        self._made: SimpleQueue[tuple[Batch, Note] | _End] = SimpleQueue()
        self._room = threading.Semaphore(ahead - 1)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._make, name="regard-prefetch", daemon=True)

    def __enter__(self) -> Prefetch[Batch, Note]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._room.release()
        self._thread.join()

    def __iter__(self) -> Iterator[tuple[Batch, Note]]:
        while not isinstance(made := self._made.get(), _End):
            self._room.release()
            batch, note = made
            # moved here, not in the thread: on the stream of the consumer, and never during its graph capture
            yield batch.to(self._device, non_blocking=True), note
        self._made.put(made)
        if made.error is not None:
            raise made.error

    def _make(self) -> None:
        error: BaseException | None = None
        try:
            for batch, note in self._batches:
                self._made.put((batch.pin_memory() if self._device.type == "cuda" else batch, note))
                self._room.acquire()
                if self._left.is_set():
                    break
        except BaseException as caught:
            error = caught
        self._made.put(_End(error))
