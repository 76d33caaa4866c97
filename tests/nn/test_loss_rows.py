"""The kernel for rows of logits against the loss as it is written."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn import cross_entropy, linear_cross_entropy
from regard.nn import loss as loss_module
from regard.nn.loss import IGNORE
from regard.nn.loss_rows import loss_rows, usable

pytestmark = pytest.mark.gpu


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
    each = [cross_entropy(row[None], wanted[None], smoothing) for row, wanted in zip(exact, target, strict=True)]
    assert_close(sums[0].double(), torch.stack([one.total.detach() for one in each]), rtol=1e-5, atol=1e-5)
    assert_close(sums[1].double(), torch.stack([one.nll for one in each]), rtol=1e-5, atol=1e-5)
    assert_close(gradient[:, :size].double(), wanted, rtol=1e-2, atol=1e-6)
    assert not gradient[:, size:].any()
    assert not gradient[::7].any()


@pytest.mark.parametrize("biased", [False, True])
def test_the_loss_of_hidden_states_goes_through_it(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several chunks, and with a vocabulary that is filled up."""
    torch.manual_seed(0)
    monkeypatch.setitem(loss_module.LOGITS_PER_CHUNK, "cuda", 70 * 101)
    hidden, weight = torch.randn(200, 32, device="cuda"), torch.randn(101, 32, device="cuda") / 4
    bias, target = torch.randn(101, device="cuda"), torch.randint(101, (200,), device="cuda")
    target[::5] = IGNORE
    found, wanted = [], []
    for results, dtype in ((found, torch.bfloat16), (wanted, torch.float64)):
        given = [part.to(torch.bfloat16).to(dtype).requires_grad_() for part in (hidden, weight, bias)]
        loss = linear_cross_entropy(given[0], given[1], target, 0.1, given[2] if biased else None)
        results += [loss.total, *torch.autograd.grad(loss.total, given if biased else given[:2])]
    for ours, exact in zip(found, wanted, strict=True):
        assert_close(ours.double(), exact, rtol=0, atol=2e-2 * float(exact.detach().abs().max()))
