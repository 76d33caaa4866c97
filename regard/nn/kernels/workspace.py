"""Memory of kernels that outlives a call, owned by the caller: packed weights, and the semaphores of split-K.

Programs of a split-K kernel count themselves ready, and the last one adds up the parts. Counters must be zero when the
kernel begins; to zero them for every call is another launch, as long as a small product itself. So the kernel leaves
them at zero, and calls that run one after another can share them. Who knows that calls do is who owns the stream of
calls: a decoder state, whose steps follow each other, or a CUDA graph. It holds a `Workspace` and makes it active
around the calls. Without one every call zeroes its own counters: always right, a launch slower. Nothing is kept in
this module, so two threads, streams or graphs never meet in the same counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

CAPACITY = 256
"""Semaphores of a workspace."""


@dataclass
class PackedWeight:
    """A copy of a weight matrix in a kernel's own layout, once the kernel has made it."""

    copy: Tensor | None = None


class Workspace:
    """Semaphores for kernels that run one after another, on one device; allocated when first needed."""

    def __init__(self) -> None:
        self._semaphores: Tensor | None = None
        self._prepared: tuple[Any, Any] | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the kernels that this thread launches meanwhile use this workspace."""
        before = _active.set(self)
        try:
            yield
        finally:
            _active.reset(before)

    def prepare(self, layers: Any, make: Callable[[Any], Any]) -> Any:
        """Return what a kernel makes of layers, the same for as long as these are."""
        if self._prepared is None or self._prepared[0] is not layers:
            self._prepared = (layers, make(layers))
        return self._prepared[1]

    def take(self, n: int, device: torch.device) -> Int[Tensor, " n"] | None:
        """Return `n` semaphores, all zero; None if there are too few, or none on this device."""
        if self._semaphores is None and not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            self._semaphores = torch.zeros(CAPACITY, dtype=torch.int32, device=device)
        kept = self._semaphores
        return None if kept is None or n > CAPACITY or kept.device != device else kept[:n]


_active: ContextVar[Workspace | None] = ContextVar("active", default=None)


def semaphores(n: int, device: torch.device) -> Int[Tensor, " n"]:
    """Return `n` zeros that no kernel running at the same time uses; who takes them must leave zeros.

    Those that are made here while a graph is captured are zeroed whenever it is replayed.
    """
    workspace = _active.get()
    taken = None if workspace is None else workspace.take(n, device)
    return torch.zeros(n, dtype=torch.int32, device=device) if taken is None else taken


def prepare(layers: Any, make: Callable[[Any], Any]) -> Any:
    """Return what a kernel makes of layers, kept in the active workspace if there is one."""
    workspace = _active.get()
    return make(layers) if workspace is None else workspace.prepare(layers, make)
