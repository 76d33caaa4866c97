"""Work that is launched on a GPU once and then played again, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FIRST = 4
"""Calls that run the work before it is recorded."""


class Recording:
    """Work whose tensors, read and written, stay where they are.

    The first calls run it, for a recording costs as much as some of them; on a GPU the next one records it, and that
    and all that follow play it. What it gives is overwritten by the next call. Nothing is kept of the work itself.
    """

    def __init__(self) -> None:
        self._n_run = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None

    def __call__(self, work: Callable[[], Tensor]) -> Tensor:
        if self._graph is None:
            if self._n_run < FIRST or self._out is None or not self._out.is_cuda:
                self._n_run += 1
                self._out = work()
                return self._out
            self._record(work)
        assert self._graph is not None
        assert self._out is not None
        self._graph.replay()
        return self._out

    def _record(self, work: Callable[[], Tensor]) -> None:
        """Nothing is computed meanwhile, so what the work changes is not changed by it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._out = work()
        self._graph = graph
