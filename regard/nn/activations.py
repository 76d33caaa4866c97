"""GELU (Hendrycks & Gimpel 2016), exact and with tanh, in half precision from one exponential.

In a graph compiled for a GPU torch's erf and tanh take longer than to read and write the numbers. The error function is
Abramowitz & Stegun's 7.1.26, off by 1.5e-7 at most, in a kernel of our own: of the same formula in torch the compiler
kept the derivative, in float32, from forward to backward. ``1 + tanh(u)`` is ``2 sigmoid(2 u)``, for the compiler.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import BITS, HALF, constant, kernel, runnable, tl

STEEP = constant(0.3275911 / math.sqrt(2))
"""Of Abramowitz & Stegun's p, for the error function at ``x / sqrt(2)``."""

HIGHEST = constant(1 / math.sqrt(2 * math.pi))
"""Of the density of a standard normal."""

BLOCK = 2048
"""Numbers that a program takes."""


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x P(X < x)`` for a standard normal X."""
    if _is_compiled_half(x) and x.is_contiguous() and runnable(x):  # half of a gate is better left to the compiler
        result: Tensor = _gelu(x)
        return result
    return F.gelu(x)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """GPT-2's: ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    return gelu_tanh_from_sigmoid(x) if _is_compiled_half(x) else F.gelu(x, approximate="tanh")


def gelu_tanh_from_sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same, but for rounding; what is compiled rounds at the end only."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


def _is_compiled_half(x: Tensor) -> bool:
    return x.dtype in HALF and x.device.type == "cuda" and torch.compiler.is_compiling()


@torch.library.custom_op("regard::gelu", mutates_args=(), schema="(Tensor x) -> Tensor")
def _gelu(x: Tensor) -> Tensor:
    given, out = x.contiguous(), x.new_empty(x.shape)
    _gelu_kernel[_grid(x)](given, given, out, x.numel(), BACKWARD=False, BLOCK=BLOCK)
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


def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad: Tensor) -> Tensor:
    found: Tensor = _gelu_backward(grad, *ctx.saved_tensors)
    return found


_gelu.register_autograd(_gradient, setup_context=_keep)


def _grid(x: Tensor) -> tuple[int]:
    return (-(-x.numel() // BLOCK),)


@kernel
def _gelu_kernel(x, grad, out, n, BACKWARD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """``x P(X < x)``; backward the gradient times ``P(X < x) + x p(x)``, with the same exponential."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    bell, t = tl.exp2(given * given * (-0.5 * BITS)), 1 / (1 + STEEP * tl.abs(given))
    # Abramowitz & Stegun 1964, 7.1.26
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    beyond = 0.5 * series * bell
    below = tl.where(given < 0, beyond, 1 - beyond)
    if BACKWARD:
        found = tl.load(grad + i, mask=i < n, other=0.0).to(tl.float32) * (below + given * bell * HIGHEST)
    else:
        found = given * below
    tl.store(out + i, found.to(out.dtype.element_ty), mask=i < n)
