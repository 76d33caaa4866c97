"""Exact GELU (Hendrycks & Gimpel 2016) from one exponential, in Triton, for half precision in graphs compiled for CUDA.

There torch's erf takes longer than to read and write the numbers. The error function is Abramowitz & Stegun's 7.1.26,
off by 1.5e-7 at most. A kernel, not the formula in torch: of that the compiler kept the derivative, in float32, from
forward to backward, where the kernel reads x again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, LOG2_E, constexpr, jit, runs_on, tl

P = constexpr(0.3275911 / math.sqrt(2))
"""Abramowitz & Stegun's p, for the error function at ``x / sqrt(2)``."""

DENSITY_AT_0 = constexpr(1 / math.sqrt(2 * math.pi))
"""The highest density of a standard normal."""

BLOCK = 2048
"""Numbers that a program takes."""

LIMITS = "compiled graphs"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in HALF_PRECISION and runs_on(device)


def supports(x: Tensor) -> bool:
    """Return True if the kernel pays for this tensor: half of a gate is better left to the compiler."""
    return torch.compiler.is_compiling() and x.is_contiguous() and available(x.device, x.dtype)


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x P(X < x)`` for a standard normal X."""
    out: Tensor = _gelu(x)
    return out


@torch.library.custom_op("regard::gelu", mutates_args=(), schema="(Tensor x) -> Tensor")
def _gelu(x: Tensor) -> Tensor:
    x_flat, out = x.contiguous(), x.new_empty(x.shape)
    _gelu_kernel[_grid(x)](x_flat, x_flat, out, x.numel(), BACKWARD=False, BLOCK=BLOCK)
    return out


@torch.library.custom_op("regard::gelu_backward", mutates_args=(), schema="(Tensor grad, Tensor x) -> Tensor")
def _gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    out = x.new_empty(x.shape)
    _gelu_kernel[_grid(x)](x.contiguous(), grad.contiguous(), out, x.numel(), BACKWARD=True, BLOCK=BLOCK)
    return out


@_gelu.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@_gelu_backward.register_fake
def _(grad: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    dx: Tensor = _gelu_backward(grad, *ctx.saved_tensors)
    return dx


_gelu.register_autograd(_backward, setup_context=_setup_context)


def _grid(x: Tensor) -> tuple[int]:
    return (-(-x.numel() // BLOCK),)


@jit
def _gelu_kernel(x_in, grad, out, n, BACKWARD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute ``x cdf(x)``; backward the gradient times ``cdf(x) + x pdf(x)``, with the same exponential."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_in + i, mask=i < n, other=0.0).to(tl.float32)
    bell, t = tl.exp2(x * x * (-0.5 * LOG2_E)), 1 / (1 + P * tl.abs(x))
    # Abramowitz & Stegun 1964, 7.1.26
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * bell
    cdf = tl.where(x < 0, tail, 1 - tail)
    if BACKWARD:
        y = tl.load(grad + i, mask=i < n, other=0.0).to(tl.float32) * (cdf + x * bell * DENSITY_AT_0)
    else:
        y = x * cdf
    tl.store(out + i, y.to(out.dtype.element_ty), mask=i < n)
