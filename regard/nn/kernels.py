"""Whether kernels of our own can run: they are written in Triton, which comes with the builds of torch for CUDA."""

from __future__ import annotations

import os
from importlib.util import find_spec
from shutil import which

from torch import Tensor

COMPILES = find_spec("triton") is not None and any(which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
"""Triton builds the launcher of a kernel with a C compiler."""


def runnable(x: Tensor) -> bool:
    """Whether a kernel can take this tensor."""
    return COMPILES and x.is_cuda
