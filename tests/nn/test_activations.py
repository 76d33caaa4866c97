"""GELU from one exponential against torch's own in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.nn.activations import Gelu, by_sigmoid, gelu, gelu_tanh


def with_slope(function: object, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)  # type: ignore[operator]
    return y.detach().double(), torch.autograd.grad(y.sum(), x)[0].double()


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_they_are_gelu(kind: str) -> None:
    x = torch.linspace(-12, 12, 20001)
    found = with_slope(Gelu.apply if kind == "none" else by_sigmoid, x)
    wanted = with_slope(lambda x: F.gelu(x, approximate=kind), x.double())
    assert_close(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("function", "kind"), [(gelu, "none"), (gelu_tanh, "tanh")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_elsewhere_they_are_torchs_own(function: object, kind: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-5, 5, 101, dtype=dtype)
    assert torch.equal(function(x), F.gelu(x, approximate=kind))  # type: ignore[operator]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("function", "kind"), [(gelu, "none"), (gelu_tanh, "tanh")])
def test_compiled_for_a_gpu_they_are_as_exact_as_half_precision_is(function: object, kind: str) -> None:
    x = torch.linspace(-12, 12, 20001, device="cuda", dtype=torch.bfloat16)
    found = with_slope(torch.compile(function, fullgraph=True), x)  # type: ignore[call-overload]
    wanted = with_slope(lambda x: F.gelu(x, approximate=kind), x.double())
    assert_close(found, wanted, rtol=2**-8, atol=1e-6)
