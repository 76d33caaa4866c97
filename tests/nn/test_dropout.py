"""Dropout: the dropped fraction, the mean, independence and the seed."""

from __future__ import annotations

import pytest
import torch

from regard.nn import Dropout
from regard.nn.dropout import _hash_random_bits, _keep_threshold


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_dropped_fraction_and_mean(p):
    torch.manual_seed(0)
    x = torch.ones(400, 501)
    out = Dropout(p)(x)
    n = x.numel()
    spread = 5 * (p * (1 - p) / n) ** 0.5
    assert abs(float((out == 0).double().mean()) - p) < spread
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)))


@pytest.mark.parametrize("bits", [16, 32])
def test_probability_near_one_drops_nearly_all(bits):
    """The threshold must fit in the number of bits; otherwise it would wrap around and nothing would be dropped."""
    assert _keep_threshold(1 - 1e-12, bits) == 2 ** (bits - 1) - 1
    torch.manual_seed(0)
    assert int((Dropout(1 - 1e-6)(torch.ones(1000, 10)) != 0).sum()) < 10


def test_elements_are_dropped_independently():
    """The four elements that share one random number are independent, and so are rows."""
    torch.manual_seed(0)
    dropped = (Dropout(0.5)(torch.ones(4096, 64)) == 0).double()
    centred = dropped - dropped.mean(0)
    correlation = (centred.T @ centred) / len(dropped) / 0.25
    assert float((correlation - torch.eye(64)).abs().max()) < 0.09


def test_same_seed_drops_the_same_elements():
    x = torch.ones(7, 9)
    torch.manual_seed(3)
    once = Dropout(0.4)(x)
    torch.manual_seed(3)
    again = Dropout(0.4)(x)
    other = Dropout(0.4)(x)
    torch.testing.assert_close(once, again, rtol=0, atol=0)
    assert not torch.equal(once, other)


def test_gradient_flows_through_kept_elements_only():
    x = torch.randn(50, 3, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    out = Dropout(0.3)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(out == 0, 0.0, 1 / 0.7).double())


def test_eval_mode_and_zero_probability_return_the_input():
    x = torch.randn(5, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_hashed_random_bits_are_uniform_and_independent(p):
    """The fraction is right; neighbours, elements of one column and two calls are uncorrelated."""
    torch.manual_seed(0)
    x = torch.empty(2048, 64)
    first, second = ((_hash_random_bits(x) < _keep_threshold(p, 32)).double() for _ in range(2))
    n = x.numel()
    assert abs(float(first.mean()) - p) < 5 * (p * (1 - p) / n) ** 0.5
    one, other = ((dropped - p).flatten() / (p * (1 - p)) ** 0.5 for dropped in (first, second))
    for distance in (1, 2, 3, 4, 8, 16, 63, 64, 65, 128, 4096):
        assert abs(float(one[distance:] @ one[:-distance])) < 5 * n**0.5
    assert abs(float(one @ other)) < 5 * n**0.5


@pytest.mark.gpu
def test_compiled_graph_on_a_gpu_uses_hashed_random_bits(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(0)
    out = Dropout(0.25)(torch.ones(300, 100, device="cuda"))
    assert abs(float((out == 0).double().mean()) - 0.25) < 0.02
    torch.testing.assert_close(out.max().cpu(), torch.tensor(1 / 0.75))
