"""Kernels of short packed rows against attention with explicit weights, forward and backward."""

from __future__ import annotations

import pytest
import torch
from attention_reference import assert_is_attention, packed
from torch.testing import assert_close

from regard.nn import MultiHeadAttention, record

short = pytest.importorskip("regard.nn.kernels.packed_attention_short")
attend = short.packed_self_attention

# Scores of queries with nothing to attend to overflow before they are replaced by zeros.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp2:RuntimeWarning")
on_gpu = pytest.mark.gpu

SMALL = [(17, 2, 16), (20, 1, 8), (70, 1, 24)]
LARGE = [(128, 4, 64), (100, 3, 40), (64, 1, 8)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_heads", "d_head"), SMALL)
def test_it_is_attention(n_tokens, n_heads, d_head, causal, device):
    assert_is_attention(attend, 3, n_tokens, n_heads, d_head, device, causal=causal)


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_heads", "d_head"), LARGE)
def test_it_is_attention_at_size(n_tokens, n_heads, d_head, causal):
    assert_is_attention(attend, 5, n_tokens, n_heads, d_head, torch.device("cuda"), causal=causal)


def test_multi_head_attention_takes_it_unless_weights_are_recorded(device, used):
    torch.manual_seed(0)
    attention, mask = MultiHeadAttention(32, 2).to(device).half(), packed(2, 20, device, causal=True)
    x = torch.randn(2, 20, 32, device=device, dtype=torch.float16)
    with record(attention, "weights"):
        explicit = attention(x, mask).detach()
    assert not used
    found = attention(x, mask).detach()
    assert used == ["packed_attention_short"]
    assert_close(found, explicit, rtol=0, atol=4e-3 * float(explicit.abs().max()))


def test_it_takes_half_precision_within_its_limits(device):
    mask = packed(1, 8, device, causal=False)
    half = torch.zeros(2, 128, 3 * 64, device=device, dtype=torch.float16)
    assert short.supports(half, mask, 1)
    assert short.supports(half, mask, 8)
    assert not short.supports(half.float(), mask, 1)
    assert not short.supports(half[:, :, : 3 * 60], mask, 5)  # a width of 12
    assert not short.supports(torch.zeros(2, 129, 192, device=device, dtype=torch.float16), mask, 1)
    assert not short.supports(torch.zeros(2, 128, 3 * 128, device=device, dtype=torch.float16), mask, 1)
