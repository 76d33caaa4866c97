"""Kernels of our own, and whether they can run: they are written in Triton, which comes with torch built for CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import unwrap
from shutil import which
from typing import Any

from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

__all__ = ["kernel", "runnable", "tl"]

COMPILES = triton is not None and any(which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
"""Triton builds the launcher of a kernel with a C compiler."""


def kernel(written: Callable[..., Any]) -> Any:
    """A kernel, or a part of one, from how it is written; None where there is no Triton."""
    return None if triton is None else triton.jit(unwrap(written))


def runnable(x: Tensor) -> bool:
    """Whether a kernel can take this tensor."""
    return COMPILES and x.is_cuda
