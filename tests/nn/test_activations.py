"""GELU from one exponential against torch's own in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.nn import activations
from regard.nn.activations import gelu, gelu_tanh, gelu_tanh_from_sigmoid

Function = Callable[[Tensor], Tensor]


def with_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach().double(), torch.autograd.grad(y.sum(), x)[0].double()


def test_by_a_sigmoid_it_is_gelu_with_tanh() -> None:
    x = torch.linspace(-12, 12, 20001)
    wanted = with_slope(lambda x: F.gelu(x, approximate="tanh"), x.double())
    assert_close(with_slope(gelu_tanh_from_sigmoid, x), wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.gpu
def test_the_kernel_is_gelu_wherever_numbers_lie() -> None:
    line = torch.linspace(-12, 12, 20002, device="cuda")
    for x in (line, line.view(2, -1).T):
        assert_close(with_slope(activations._gelu, x), with_slope(F.gelu, x.double()), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("function", "kind"), [(gelu, "none"), (gelu_tanh, "tanh")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_elsewhere_they_are_torchs_own(function: Function, kind: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-5, 5, 101, dtype=dtype)
    assert torch.equal(function(x), F.gelu(x, approximate=kind))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("function", "kind"), [(gelu, "none"), (gelu_tanh, "tanh")])
def test_compiled_for_a_gpu_they_are_as_exact_as_half_precision_is(
    function: Function, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, grid = [], activations._grid
    monkeypatch.setattr(activations, "_grid_shape", lambda x: used.append(x) or grid(x))
    x = torch.linspace(-12, 12, 20001, device="cuda", dtype=torch.bfloat16)
    found = with_slope(torch.compile(function, fullgraph=True), x)
    wanted = with_slope(lambda x: F.gelu(x, approximate=kind), x.double())
    assert_close(found, wanted, rtol=2**-8, atol=1e-6)
    assert len(used) == (2 if kind == "none" else 0)  # the kernel, forward and backward
