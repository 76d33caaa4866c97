"""Cross-entropy as a sum with a count, against torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from regard.nn import cross_entropy, linear_cross_entropy, symmetric_kl_divergence
from regard.nn import loss as loss_module
from regard.nn.kernels import plain
from regard.nn.loss import IGNORE


def draw(seed: int, *shape: int, vocabulary: int = 7, ignored: float = 0.3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, vocabulary, generator=generator, dtype=torch.float64) * 3
    target = torch.randint(vocabulary, shape, generator=generator)
    target[torch.rand(shape, generator=generator) < ignored] = IGNORE
    return logits.requires_grad_(), target


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 3), length=st.integers(1, 6), smoothing=st.floats(0, 0.9))
def test_loss_and_gradient_equal_torch(seed: int, rows: int, length: int, smoothing: float) -> None:
    logits, target = draw(seed, rows, length)
    loss = cross_entropy(logits, target, smoothing)
    expected = F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), label_smoothing=smoothing, ignore_index=IGNORE, reduction="sum"
    )
    assert_close(loss.total, expected, rtol=1e-12, atol=1e-12)
    (ours,), (theirs,) = torch.autograd.grad(loss.total, logits), torch.autograd.grad(expected, logits)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    plain = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE, reduction="sum")
    assert_close(loss.nll, plain, rtol=1e-12, atol=1e-12)
    assert loss.n_tokens.item() == (target != IGNORE).sum().item()


def test_cross_entropy_matches_the_formula() -> None:
    logits, target = torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64), torch.tensor([1])
    log_probs = [x - math.log(sum(math.exp(y) for y in (0, 1, 3))) for x in (0, 1, 3)]
    expected = -0.9 * log_probs[1] - 0.1 * sum(log_probs) / 3
    assert cross_entropy(logits, target, 0.1).total.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_targets_ignored_gives_zero_loss_and_gradient(smoothing: float) -> None:
    logits, target = draw(0, 2, 3, ignored=1.1)
    loss = cross_entropy(logits, target, smoothing)
    assert (loss.total.item(), loss.nll.item(), loss.n_tokens.item()) == (0.0, 0.0, 0)
    (gradient,) = torch.autograd.grad(loss.total, logits)
    assert (gradient == 0).all()


def test_sums_add_up_over_any_split() -> None:
    logits, target = draw(1, 6, 5)
    whole, parts = cross_entropy(logits, target, 0.1), [cross_entropy(logits[i], target[i], 0.1) for i in range(6)]
    assert_close(torch.stack([p.total for p in parts]).sum(), whole.total, rtol=1e-12, atol=0)
    assert sum(int(p.n_tokens) for p in parts) == int(whole.n_tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_summed_in_float32(dtype: torch.dtype) -> None:
    logits, target = draw(2, 64, 16, vocabulary=50)
    half = logits.detach().to(dtype).requires_grad_()
    loss = cross_entropy(half, target, 0.1)
    exact = cross_entropy(half.detach().double().requires_grad_(), target, 0.1)
    assert loss.total.dtype == torch.float32
    assert_close(loss.total.double(), exact.total, rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(loss.total, half)
    assert gradient.dtype == dtype
    expected = F.cross_entropy(
        wide := half.detach().float().flatten(0, 1).requires_grad_(),
        target.flatten(),
        label_smoothing=0.1,
        ignore_index=IGNORE,
        reduction="sum",
    )
    assert_close(gradient.flatten(0, 1).float(), torch.autograd.grad(expected, wide)[0], rtol=1e-2, atol=1e-4)


def test_a_confident_prediction_still_learns_in_bfloat16() -> None:
    """``p - 1`` is rounded once, not as the difference of two rounded numbers: near 1 they would cancel to 0."""
    logits = torch.zeros(1, 4, dtype=torch.bfloat16)
    logits[0, 2] = 8.0
    cross_entropy(logits.requires_grad_(), torch.tensor([2])).total.backward()
    assert logits.grad is not None
    expected = logits.detach().double().softmax(-1) - torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    assert_close(logits.grad.double(), expected, rtol=1e-2, atol=0)


def test_int32_targets_and_large_logits() -> None:
    logits, target = torch.tensor([[1e4, -1e4, 0.0]]), torch.tensor([0], dtype=torch.int32)
    loss = cross_entropy(logits, target)
    assert loss.total.item() == 0.0
    assert cross_entropy(logits, target + 1).total.item() == 2e4


def test_nll_has_no_gradient() -> None:
    logits, target = draw(3, 2, 2)
    assert not cross_entropy(logits, target, 0.1).nll.requires_grad


@pytest.mark.parametrize(("rows", "sizes"), [(32, [32]), (61, [31, 30]), (62, [31, 31]), (140, [35] * 4), (0, [0])])
def test_chunks_have_equal_sizes(rows, sizes, monkeypatch):
    """A small last chunk would use a GPU badly."""
    chunk_sizes, cross_entropy_of_chunk = [], plain.cross_entropy

    def watched(logits, *rest):
        chunk_sizes.append(len(logits))
        return cross_entropy_of_chunk(logits, *rest)

    monkeypatch.setitem(loss_module.LOGITS_PER_CHUNK, "cpu", 40 * 30)
    monkeypatch.setattr(plain, "cross_entropy", watched)
    linear_cross_entropy(torch.randn(rows, 4), torch.randn(30, 4), torch.zeros(rows, dtype=torch.long))
    assert chunk_sizes == sizes


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows_at_once", "even"), [(1, 1), (4, 1), (1000, 1), (4, 8), (1, 30)])
def test_linear_cross_entropy_equals_cross_entropy_of_the_logits(smoothing, rows_at_once, even, monkeypatch):
    """For any chunk size and any padding of the vocabulary."""
    monkeypatch.setitem(loss_module.LOGITS_PER_CHUNK, "cpu", rows_at_once * 30)
    monkeypatch.setitem(loss_module.PAD_TO_MULTIPLE_OF, "cpu", even)
    hidden = torch.randn(3, 7, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(30, 16, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(30, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 30, (3, 7))
    target[0, 2] = target[2, 6] = IGNORE
    values, expected_values = [], []
    for results, loss in (
        (values, linear_cross_entropy(hidden, weight, target, smoothing, bias)),
        (expected_values, cross_entropy(hidden @ weight.T + bias, target, smoothing)),
    ):
        gradients = torch.autograd.grad(loss.total * 0.3, (hidden, weight, bias))
        results += [loss.total, loss.nll, loss.n_tokens, *gradients]
    torch.testing.assert_close(values, expected_values)


def test_linear_cross_entropy_in_bfloat16_learns_from_confident_predictions():
    hidden = torch.tensor([[8.0]], dtype=torch.bfloat16, requires_grad=True)
    weight = torch.tensor([[1.0], [0.0]], dtype=torch.bfloat16)
    linear_cross_entropy(hidden, weight, torch.tensor([0])).total.backward()
    assert hidden.grad.item() == pytest.approx(-0.000335, rel=0.02)


def test_linear_cross_entropy_without_gradients():
    hidden, weight, target = torch.randn(5, 8), torch.randn(9, 8), torch.randint(0, 9, (5,))
    with torch.no_grad():
        torch.testing.assert_close(
            linear_cross_entropy(hidden, weight, target).nll, cross_entropy(hidden @ weight.T, target).nll
        )


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_linear_cross_entropy_with_one_side_frozen(frozen):
    hidden, weight = torch.randn(5, 8, dtype=torch.float64), torch.randn(9, 8, dtype=torch.float64)
    learned = weight if frozen == "hidden" else hidden
    learned.requires_grad_()
    target = torch.randint(0, 9, (5,))
    linear_cross_entropy(hidden, weight, target).total.backward()
    values, learned.grad = learned.grad, None
    cross_entropy(hidden @ weight.T, target).total.backward()
    assert_close(values, learned.grad)


def test_symmetric_kl_divergence_matches_torch_and_skips_ignored_targets() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 2, 3, 5, generator=generator, dtype=torch.float64)
    target = torch.tensor([[1, 2, IGNORE], [IGNORE, 0, 4]])
    assert symmetric_kl_divergence(one, one, target).item() == 0.0
    p, q = one[target >= 0].log_softmax(-1), other[target >= 0].log_softmax(-1)
    both = sum(F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p)))
    assert_close(symmetric_kl_divergence(one, other, target), both / 2, check_dtype=False, rtol=1e-5, atol=1e-6)
    assert_close(symmetric_kl_divergence(one, other, target), symmetric_kl_divergence(other, one, target))
