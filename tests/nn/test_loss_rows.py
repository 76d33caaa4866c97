"""The kernel for rows of logits against the loss as it is written."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn import cross_entropy
from regard.nn.loss import IGNORE
from regard.nn.loss_rows import loss_rows, usable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("size", "width"), [(50257, 50304), (4096, 4096), (37, 64)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_the_loss_and_its_gradient(size: int, width: int, smoothing: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(50, width, device="cuda", dtype=dtype) * 3, torch.randint(size, (50,), device="cuda")
    target[::7], logits[:, size:] = IGNORE, 0.0
    assert usable(logits)
    gradient, sums = loss_rows(logits, target, smoothing, size)
    exact = logits[:, :size].double().requires_grad_()
    loss = cross_entropy(exact, target, smoothing)
    (wanted,) = torch.autograd.grad(loss.total, exact)
    assert_close(sums[0].sum().double(), loss.total.detach(), rtol=1e-5, atol=0)
    assert_close(sums[1].sum().double(), loss.nll, rtol=1e-5, atol=0)
    assert_close(gradient[:, :size].double(), wanted, rtol=1e-2, atol=1e-6)
    assert not gradient[:, size:].any()
    assert not gradient[::7].any()
