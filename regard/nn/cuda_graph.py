"""CUDA graphs: work that is captured on a GPU once and then replayed with one launch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.nn.kernels.workspace import Workspace


class CudaGraphRunner:
    """Run work whose tensors, read and written, stay where they are; on a GPU capture it and replay it.

    The first call runs it eagerly, as a warm-up; on a GPU the second one captures it, which takes about as long, and
    that and all that follow replay it. The result is overwritten by the next call. Nothing is kept of the work itself.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._out: Tensor | None = None
        self._workspace = Workspace()  # of its own: a graph may be replayed beside other work

    def __call__(self, work: Callable[[], Tensor]) -> Tensor:
        if self._out is None or not self._out.is_cuda:
            with self._workspace.active():
                self._out = work()
            return self._out
        if self._graph is None:
            self._graph = self._capture(work, self._out.device)
        self._graph.replay()
        return self._out

    def _capture(self, work: Callable[[], Tensor], device: torch.device) -> torch.cuda.CUDAGraph:
        """Capture the work; nothing is computed meanwhile, so what the work changes is not changed by it."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)  # of its own, for other threads may capture as well
        with (
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            self._workspace.active(),
        ):
            self._out = work()
        return graph
