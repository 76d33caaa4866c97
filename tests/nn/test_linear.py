"""The product for few rows is the ordinary product."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.nn import Linear, product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "out"), [((1,), 64), ((2,), 64), ((3, 5), 64), ((256,), 24), ((300,), 64), ((3,), 63)]
)
def test_product_is_the_linear_map(rows, out, biased, dtype):
    x, weight = torch.randn(*rows, 16, dtype=dtype), torch.randn(out, 16, dtype=dtype)
    bias = torch.randn(out, dtype=dtype) if biased else None
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight, bias), F.linear(x, weight, bias))
    torch.testing.assert_close(product(x, weight, bias), F.linear(x, weight, bias), rtol=0, atol=0)


@pytest.mark.parametrize("out", [1 << 17, 10_001])
@pytest.mark.parametrize("rows", [1, 8, 9, 128])
def test_a_vocabulary_and_few_rows(rows, out):
    x, weight = torch.randn(rows, 64), torch.randn(out, 64)
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight), x @ weight.T, rtol=1e-5, atol=1e-4)


def test_a_vocabulary_that_has_changed():
    """The copy it is multiplied with follows."""
    x, weight = torch.randn(4, 16), torch.nn.Parameter(torch.randn(10_000, 16))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(product(x, weight), x @ weight.T, rtol=1e-5, atol=1e-4)
            weight.mul_(-2.0)


def test_rows_that_do_not_lie_together():
    x, weight = torch.randn(16, 4).T, torch.randn(32, 16)
    with torch.no_grad():
        torch.testing.assert_close(product(x, weight), F.linear(x, weight))


def test_linear_learns_and_predicts_alike():
    layer = Linear(16, 32)
    x = torch.randn(4, 16)
    learning = layer(x)
    learning.sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        torch.testing.assert_close(layer(x), learning)
