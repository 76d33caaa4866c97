"""The kernel of the most likely tokens against log_softmax and topk of torch, in float64."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn.kernels import dispatch, plain

kernel = pytest.importorskip("regard.nn.kernels.top_log_probs")

EOS = 2
NOTHING = torch.zeros(0, dtype=torch.long)


def logits_of(n_rows, n_tokens, dtype, device, seed=0):
    """Return distinct logits, so that there is one right order, in rows that are not side by side."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(n_tokens, generator=generator) for _ in range(n_rows)]
    spread = torch.stack(rows).double() / n_tokens * 30 - 15
    return spread.to(device, dtype)[:, None].expand(-1, 2, -1).contiguous()[:, 0]


def assert_is_exact(logits, n, suppressed, tolerance):
    assert kernel.supports(logits, n, EOS, suppressed)
    score, token, end = kernel.top_log_probs(logits, n, EOS, suppressed)
    exact = logits.double().log_softmax(-1)
    assert_close(end.double(), exact[:, EOS], rtol=0, atol=tolerance)
    exact[:, suppressed] = -torch.inf
    assert_close(score.double(), exact.topk(n).values, rtol=0, atol=tolerance)
    assert_close(exact.gather(1, token), exact.topk(n).values, rtol=0, atol=0)
    assert all(len(set(row)) == n for row in token.tolist())


@pytest.mark.parametrize(("n_rows", "n_tokens", "n"), [(3, 5000, 8), (1, 4096, 1), (2, 40, 40), (2, 8193, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_finds_the_best(n_rows, n_tokens, n, dtype, device):
    """In half precision many logits are equal: any of them may be taken, each once."""
    logits = logits_of(n_rows, n_tokens, dtype, device)
    for suppressed in (NOTHING, torch.tensor([0, 1, n_tokens - 1])):
        if n + len(suppressed) <= n_tokens:
            assert_is_exact(logits, n, suppressed.to(device), 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("n_rows", "n_tokens", "n"), [(2560, 32000, 10), (4, 32000, 8), (64, 250_002, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_finds_the_best_at_size(n_rows, n_tokens, n, dtype):
    suppressed = torch.tensor([0, 1], device="cuda")
    assert_is_exact(logits_of(n_rows, n_tokens, dtype, torch.device("cuda")), n, suppressed, 2e-5)


def test_the_best_of_one_group_are_all_found(device):
    """Those of a chunk may all lie side by side."""
    logits = torch.arange(5000.0, device=device)[None] / 100
    assert_is_exact(logits, 20, NOTHING.to(device), 2e-5)
    assert_is_exact(logits.flip(1), 20, NOTHING.to(device), 2e-5)


def test_impossible_tokens_come_last(device):
    logits = torch.full((1, 5000), -torch.inf, device=device)
    logits[0, [7, 4500]] = torch.tensor([1.0, 2.0], device=device)
    score, token, end = kernel.top_log_probs(logits, 6, EOS, NOTHING.to(device))
    assert token[0, :2].tolist() == [4500, 7]
    assert_close(score[0, :2].cpu(), torch.tensor([1.0, 2.0]).log_softmax(0).flip(0))
    assert (score[0, 2:] == -torch.inf).all()
    assert end.tolist() == [-torch.inf]
    assert ((token >= 0) & (token < 5000)).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_has_no_log_probability_is_not_a_number(value, device):
    """And its tokens are still some of the vocabulary."""
    logits = torch.zeros(2, 100, device=device)
    logits[0] = value
    logits[1, 50] = torch.nan
    score, token, end = kernel.top_log_probs(logits, 4, EOS, NOTHING.to(device))
    assert score.isnan().all()
    assert end.isnan().all()
    assert ((token >= 0) & (token < 100)).all()


def test_the_search_takes_it(device, used):
    logits, suppressed = logits_of(2, 50, torch.float32, device), torch.tensor([0], device=device)
    found = dispatch.top_log_probs(logits, 4, EOS, suppressed)
    assert used == ["top_log_probs"]
    for part, expected in zip(found, plain.top_log_probs(logits, 4, EOS, suppressed), strict=True):
        assert_close(part, expected)


def test_it_is_left_alone_where_it_cannot_serve(device):
    logits, suppressed = torch.zeros(2, 100, device=device), NOTHING.to(device)
    assert kernel.supports(logits, 4, EOS, suppressed)
    assert not kernel.supports(logits.double(), 4, EOS, suppressed)
    assert not kernel.supports(logits, 101, EOS, suppressed)
    assert not kernel.supports(logits, 65, EOS, suppressed)
    assert not kernel.supports(logits[:0], 4, EOS, suppressed)
    assert not kernel.supports(logits.T, 1, EOS, suppressed)
    assert not kernel.supports(torch.zeros(1, 1 << 19, device=device), 4, EOS, suppressed)
    assert not kernel.supports(logits.clone().requires_grad_(), 4, EOS, suppressed)
