"""CUDA graphs: a function captured on a GPU once and then replayed with one launch.

models/decoder_state.py generates the tokens of language models with it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

from regard.nn.kernels.workspace import Workspace

_capturing = Lock()
"""Held while a graph is captured: whoever begins to capture synchronizes the device, which breaks other captures."""


class CudaGraphRunner:
    """Run a function of static tensors; on a GPU, capture it as a CUDA graph and replay it.

    The first call runs it eagerly, as a warm-up; on a GPU the second call captures it, which takes about as long, and
    replays it, as do all later calls. Each call overwrites the result of the previous one.
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
        """Capture the function without running it: no tensor changes."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)  # of its own, for other threads may capture as well
        with (
            _capturing,
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            self._workspace.active(),
        ):
            self._out = work()
        return graph
