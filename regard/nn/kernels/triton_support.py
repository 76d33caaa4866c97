"""Share between the Triton kernels what each of them needs: the language, constants, and whether a GPU can run them.

Triton comes with torch built for CUDA. Where it is missing, kernel files can still be imported, and none of them is
ever chosen (dispatch.py). With ``TRITON_INTERPRET=1`` Triton interprets them on a CPU: slow, and good for debugging.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container
from functools import cache
from inspect import unwrap
from shutil import which
from typing import Any

import torch

from regard.nn.kernels.tracing import constant_in_graphs

try:
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:
    triton = tl = TensorDescriptor = None

__all__ = [
    "CAPABILITIES",
    "HALF_PRECISION",
    "LOG2_E",
    "NEGATIVE",
    "TensorDescriptor",
    "constexpr",
    "jit",
    "runs_on",
    "tile_size",
    "tl",
]

COMPILES = (
    triton is not None
    and torch.version.hip is None
    and any(which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
)
"""Triton builds the launcher of a kernel with a C compiler; on AMD's GPUs ours were never tried."""

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
"""Kernels are run by Triton's interpreter, on any device."""

CAPABILITIES = range(8, 13)
"""The major compute capabilities of NVIDIA's GPUs that Triton compiles for: Ampere to Blackwell."""

HALF_PRECISION = (torch.bfloat16, torch.float16)


def constexpr(value: int | float) -> Any:
    """Return a module constant that kernels may read."""
    return value if tl is None else tl.constexpr(value)


LOG2_E = constexpr(math.log2(math.e))
"""Powers of two are faster than those of e: ``exp(x) = exp2(x LOG2_E)``."""

NEGATIVE = constexpr(-1e30)
"""Initial running maximum, below every score and yet finite: -inf minus -inf is NaN."""


def jit(function: Callable[..., Any]) -> Any:
    """Make a kernel, or a function that kernels call, with `triton.jit`; None where there is no Triton."""
    return None if triton is None else triton.jit(unwrap(function))


def tile_size(n: int) -> int:
    """Return the smallest tile with room for n: a power of two, and at least the 16 that `tl.dot` takes."""
    return max(16, 1 << (n - 1).bit_length())


def runs_on(device: torch.device, capabilities: Container[int] = CAPABILITIES) -> bool:
    """Return True if kernels for these compute capabilities can be launched on a device: the current GPU alone."""
    return INTERPRETED or (COMPILES and device.type == "cuda" and capability(device) in capabilities)


@constant_in_graphs
def capability(device: torch.device) -> int:
    """Return the major compute capability of the current GPU, 0 for any other; a constant in compiled graphs."""
    return _capability(device) if device.index in (None, torch.cuda.current_device()) else 0


@cache
def _capability(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]
