"""Kernels of our own, and whether they can run: they are written in Triton, which comes with torch built for CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from functools import cache
from inspect import unwrap
from shutil import which
from typing import Any

import torch
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


def runnable(x: Tensor, generations: Container[int] = range(8, 100)) -> bool:
    """Whether a kernel for GPUs of these generations, the first number of their capability, can take this tensor."""
    return COMPILES and x.is_cuda and generation(x.device) in generations


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def generation(device: torch.device) -> int:
    return _generation(device)


@cache
def _generation(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]
