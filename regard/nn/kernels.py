"""Kernels of our own, and whether they can run: they are written in Triton, which comes with torch built for CUDA."""

from __future__ import annotations

import math
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
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    triton = tl = TensorDescriptor = None

__all__ = [
    "BITS",
    "GENERATIONS",
    "HALF",
    "LOWEST",
    "TensorDescriptor",
    "block_of",
    "constant",
    "kernel",
    "runnable",
    "tl",
]

COMPILES = (
    triton is not None
    and torch.version.hip is None
    and any(which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
)
"""Triton builds the launcher of a kernel with a C compiler; on AMD's GPUs ours were never tried."""

GENERATIONS = range(8, 13)
"""Of NVIDIA's GPUs, the first number of their compute capability: those that Triton compiles for."""

HALF = (torch.bfloat16, torch.float16)


def constant(value: int | float) -> Any:
    """A number that kernels may read."""
    return value if tl is None else tl.constexpr(value)


BITS = constant(math.log2(math.e))
"""Powers of two are faster than those of e: ``exp(x) = exp2(x BITS)``."""

LOWEST = constant(-1e30)
"""Below every score, yet a number, where there is none: -inf less -inf is no number."""


def kernel(written: Callable[..., Any]) -> Any:
    """A kernel, or a part of one, from how it is written; None where there is no Triton."""
    return None if triton is None else triton.jit(unwrap(written))


def block_of(n: int) -> int:
    """The smallest block with room for n: a power of two, and what a matrix unit takes at least."""
    return max(16, 1 << (n - 1).bit_length())


def runnable(x: Tensor, generations: Container[int] = GENERATIONS) -> bool:
    """Whether a kernel for GPUs of these generations can take this tensor: kernels run on the current device alone."""
    return COMPILES and x.is_cuda and generation(x.device) in generations


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def generation(device: torch.device) -> int:
    """Of the current GPU, 0 of others; in what is compiled it is a constant."""
    return _generation(device) if device.index in (None, torch.cuda.current_device()) else 0


@cache
def _generation(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]
