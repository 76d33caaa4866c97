"""Work that is launched on a GPU once and then played again, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.nn import few_rows


class Recording:
    """Work whose tensors, read and written, stay where they are.

    The first call runs it, for what is used for the first time must be made ready; on a GPU the next one records it,
    which takes about as long, and that and all that follow play it. What it gives is overwritten by the next call.
    Nothing is kept of the work itself.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None
        self._counters: Tensor | None = None

    def __call__(self, work: Callable[[], Tensor]) -> Tensor:
        if self._out is None or not self._out.is_cuda:
            self._out = work()
            return self._out
        if self._graph is None:
            self._graph = self._record(work, self._out.device)
        self._graph.replay()
        return self._out

    def _record(self, work: Callable[[], Tensor], device: torch.device) -> torch.cuda.CUDAGraph:
        """Nothing is computed meanwhile, so what the work changes is not changed by it."""
        graph, self._counters = torch.cuda.CUDAGraph(), few_rows.counters(device)
        stream = torch.cuda.Stream(device)  # of its own, for other threads may record as well
        with (
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            few_rows.counted_in(self._counters),
        ):
            self._out = work()
        return graph
