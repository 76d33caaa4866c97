"""Linear layers for small batches and with a constant weight, against the plain matrix multiplication."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.nn import Linear, PrepackedLinear, linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "out"), [((1,), 64), ((2,), 64), ((3, 5), 64), ((256,), 24), ((300,), 64), ((3,), 63)]
)
def test_linear_is_torchs(rows, out, biased, dtype):
    x, weight = torch.randn(*rows, 16, dtype=dtype), torch.randn(out, 16, dtype=dtype)
    bias = torch.randn(out, dtype=dtype) if biased else None
    with torch.no_grad():
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), rtol=0, atol=0)


@pytest.mark.parametrize("out", [1 << 14, 10_001])
@pytest.mark.parametrize("rows", [1, 8, 9, 128])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_vocabulary_and_few_rows(rows, out, mode):
    x, weight = torch.randn(rows, 64), torch.nn.Parameter(torch.randn(out, 64))
    with mode():
        fixed = PrepackedLinear(weight)
        for got in (linear(x, weight), fixed(x), fixed(x)):
            torch.testing.assert_close(got, x @ weight.T, rtol=1e-5, atol=1e-4)
        bias = torch.nn.Parameter(torch.randn(out))
        torch.testing.assert_close(PrepackedLinear(weight, bias)(x), x @ weight.T + bias, rtol=1e-5, atol=1e-4)


def test_a_vocabulary_in_double_precision():
    x, weight = torch.randn(20, 64, dtype=torch.float64), torch.randn(9000, 64, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(PrepackedLinear(weight)(x), x @ weight.T)


def test_rows_that_do_not_lie_together():
    x, weight = torch.randn(16, 4).T, torch.randn(32, 16)
    with torch.no_grad():
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


def test_linear_learns_and_predicts_alike():
    layer = Linear(16, 32)
    x = torch.randn(4, 16)
    learning = layer(x)
    learning.sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(layer(x), learning)
