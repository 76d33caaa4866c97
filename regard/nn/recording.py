"""Work that is launched on a GPU once and then played again, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Recording:
    """Work whose tensors, read and written, stay where they are.

    The first call runs it, and on a GPU records it for those that follow; elsewhere every call runs it. What it gives
    is overwritten by the next call. Nothing is kept of the work but the recording.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None

    def __call__(self, work: Callable[[], Tensor]) -> Tensor:
        if self._graph is not None and self._out is not None:
            self._graph.replay()
            return self._out
        out = work()
        if out.is_cuda:
            self._record(work)
        return out

    def _record(self, work: Callable[[], Tensor]) -> None:
        """Nothing is computed meanwhile, so what the work changes is changed once."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._out = work()
        self._graph = graph
