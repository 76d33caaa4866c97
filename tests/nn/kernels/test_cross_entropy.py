"""The kernel for rows of logits against the loss in float64, and its gradient against autograd's."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn import cross_entropy, linear_cross_entropy
from regard.nn import loss as loss_module
from regard.nn.loss import IGNORE

kernel = pytest.importorskip("regard.nn.kernels.cross_entropy")


def assert_is_the_loss_and_its_gradient(n_rows, n_classes, width, smoothing, dtype, device):
    torch.manual_seed(0)
    logits = (torch.randn(n_rows, width, device=device) * 3).to(dtype)
    target = torch.randint(n_classes, (n_rows,), device=device)
    target[::7], logits[:, n_classes:] = IGNORE, 5.0  # what stands behind the classes counts nowhere
    given = logits, target, smoothing, n_classes, IGNORE
    assert kernel.supports(*given)
    exact = logits[:, :n_classes].double().requires_grad_()
    wanted = cross_entropy(exact, target, smoothing)
    (gradient,) = torch.autograd.grad(wanted.total, exact)
    loss, nll, found = kernel.cross_entropy_with_gradient(*given)
    assert_close(loss.double(), wanted.total.detach(), rtol=1e-5, atol=1e-5)
    assert_close(nll.double(), wanted.nll, rtol=1e-5, atol=1e-5)
    assert_close(found[:, :n_classes].double(), gradient, rtol=1e-2, atol=1e-6)
    assert not found[:, n_classes:].any()
    assert not found[::7].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n_classes", "width"), [(4200, 4224), (37, 64), (64, 64)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_the_loss_and_its_gradient(n_classes, width, smoothing, dtype, device):
    assert_is_the_loss_and_its_gradient(9, n_classes, width, smoothing, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("n_classes", "width"), [(50257, 50304), (4096, 4096)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_is_the_loss_and_its_gradient_at_size(n_classes, width, smoothing, dtype):
    assert_is_the_loss_and_its_gradient(50, n_classes, width, smoothing, dtype, torch.device("cuda"))


@pytest.mark.parametrize("biased", [False, True])
def test_the_loss_of_hidden_states_goes_through_it(biased, device, used, monkeypatch):
    """In several chunks, and with a vocabulary that is filled up."""
    torch.manual_seed(0)
    monkeypatch.setitem(loss_module.LOGITS_PER_CHUNK, device.type, 20 * 101)
    monkeypatch.setitem(loss_module.PAD_TO_MULTIPLE_OF, device.type, 64 if device.type == "cuda" else 8)
    hidden, weight = torch.randn(40, 32, device=device), torch.randn(101, 32, device=device) / 4
    bias, target = torch.randn(101, device=device), torch.randint(101, (40,), device=device)
    target[::5] = IGNORE
    found, wanted = [], []
    for results, dtype in ((found, torch.bfloat16), (wanted, torch.float64)):
        given = [part.to(torch.bfloat16).to(dtype).requires_grad_() for part in (hidden, weight, bias)]
        loss = linear_cross_entropy(given[0], given[1], target, 0.1, given[2] if biased else None)
        results += [loss.total, *torch.autograd.grad(loss.total, given if biased else given[:2])]
    assert set(used) == {"cross_entropy"}
    for ours, exact in zip(found, wanted, strict=True):
        assert_close(ours.double(), exact, rtol=0, atol=2e-2 * float(exact.detach().abs().max()))
