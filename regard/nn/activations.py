"""GELU (Hendrycks & Gimpel 2016), exact and with tanh, in half precision from one exponential.

In a graph compiled for a GPU torch's erf and tanh take longer than to read and write the numbers. The error function is
Abramowitz & Stegun's 7.1.26, off by 1.5e-7 at most, and ``1 + tanh(u)`` is ``2 sigmoid(2 u)``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import HALF

TERMS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
STEEP = 0.3275911 / math.sqrt(2)


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x P(X < x)`` for a standard normal X."""
    if _pays(x):
        result: Tensor = Gelu.apply(x)  # type: ignore[no-untyped-call]
        return result
    return F.gelu(x)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """GPT-2's: ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    return by_sigmoid(x) if _pays(x) else F.gelu(x, approximate="tanh")


def by_sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The same, but for rounding; what is compiled rounds at the end only."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


class Gelu(torch.autograd.Function):
    """The exact one; its derivative is ``P(X < x) + x p(x)``, with the same exponential."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x.float() * _normal(x)[0]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        below, density = _normal(x)
        found: Tensor = (gradients[0].float() * (below + x.float() * density)).to(x.dtype)
        return found


def _normal(x: Tensor) -> tuple[Tensor, Tensor]:
    """``P(X < x)`` and the density at x."""
    wide = x.float()
    bell, t = torch.exp(-0.5 * wide * wide), 1 / (1 + STEEP * wide.abs())
    series = torch.zeros_like(t)
    for term in reversed(TERMS):
        series = (series + term) * t
    beyond = 0.5 * series * bell
    return torch.where(wide < 0, beyond, 1 - beyond), bell / math.sqrt(2 * math.pi)


def _pays(x: Tensor) -> bool:
    return x.dtype in HALF and x.device.type == "cuda" and torch.compiler.is_compiling()
