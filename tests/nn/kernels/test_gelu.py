"""GELU from one exponential, exact and with tanh, against torch's own in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from regard.nn import gelu, gelu_tanh

Function = Callable[[Tensor], Tensor]

BY_FILE = {"gelu": (gelu, "none"), "gelu_tanh": (gelu_tanh, "tanh")}


def with_slope(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach().double(), torch.autograd.grad(y.sum(), x)[0].double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("file", BY_FILE)
def test_eagerly_they_are_torchs_own(file: str, dtype: torch.dtype) -> None:
    function, kind = BY_FILE[file]
    x = torch.linspace(-5, 5, 101, dtype=dtype)
    assert torch.equal(function(x), F.gelu(x, approximate=kind))


def test_by_a_sigmoid_it_is_gelu_with_tanh() -> None:
    kernel = pytest.importorskip("regard.nn.kernels.gelu_tanh")
    x = torch.linspace(-12, 12, 20001)
    wanted = with_slope(lambda x: F.gelu(x, approximate="tanh"), x.double())
    assert_close(with_slope(kernel.gelu_tanh, x), wanted, rtol=2e-6, atol=1e-6)


def test_the_kernel_is_gelu_whatever_the_strides(device: torch.device) -> None:
    kernel = pytest.importorskip("regard.nn.kernels.gelu")
    line = torch.linspace(-12, 12, 20002, device=device)
    for x in (line, line.view(2, -1).T):
        assert_close(with_slope(kernel.gelu, x), with_slope(F.gelu, x.double()), rtol=2e-6, atol=1e-6)
