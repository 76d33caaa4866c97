"""The kernels of one and of a few queries in each row against torch's attention in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn import AttentionMask, KeyValue, KVCache, MultiHeadAttention
from regard.nn.kernels import dispatch

decode = pytest.importorskip("regard.nn.kernels.decode_attention")

SMALL = [(2, 3, 70, 16), (1, 3, 7, 24)]
LARGE = [(3, 2, 200, 64), (1, 12, 512, 64), (64, 4, 65, 128)]
DTYPES = [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)]


def assert_is_attention(n_rows, n_heads, n_keys, d_head, dtype, tolerance, device):
    """Of queries that lie within a projection, over a cache of which most is unused."""
    torch.manual_seed(0)
    q = torch.randn(n_rows, 1, 3, n_heads, d_head, device=device).to(dtype)[:, :, 1].transpose(1, 2)
    k, v = torch.randn(2, n_rows, n_heads, n_keys, d_head, device=device).to(dtype)
    mask = torch.rand(n_rows, 1, 1, n_keys, device=device) < 0.5
    mask[..., 0], mask[..., n_keys // 2 + 1 :] = True, False
    with torch.inference_mode():
        assert decode.supports(q, k, v, mask)
        found = decode.scaled_dot_product_attention(q, k, v, mask)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)
    assert_close(found.double(), exact, rtol=0, atol=tolerance * float(exact.abs().max()))


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("n_rows", "n_heads", "n_keys", "d_head"), SMALL)
def test_it_is_attention(n_rows, n_heads, n_keys, d_head, dtype, tolerance, device):
    assert_is_attention(n_rows, n_heads, n_keys, d_head, dtype, tolerance, device)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("n_rows", "n_heads", "n_keys", "d_head"), LARGE)
def test_it_is_attention_at_size(n_rows, n_heads, n_keys, d_head, dtype, tolerance):
    assert_is_attention(n_rows, n_heads, n_keys, d_head, dtype, tolerance, torch.device("cuda"))


def assert_is_attention_of_beams(n_rows, n_heads, n_queries, n_keys, d_head, dtype, tolerance, device, *, shared):
    """Of queries with a mask each, or one for all, over a cache whose heads lie side by side."""
    torch.manual_seed(0)
    q = torch.randn(n_rows, n_queries, 3, n_heads, d_head, device=device).to(dtype)[:, :, 1].transpose(1, 2)
    k, v = torch.randn(2, n_rows, n_keys, n_heads, d_head, device=device).to(dtype).transpose(2, 3)
    mask = torch.rand(n_rows, 1, 1 if shared else n_queries, n_keys, device=device) < 0.3
    mask[..., n_keys // 2 + 1 :] = False
    mask[..., torch.arange(mask.shape[2]), torch.arange(mask.shape[2]) % (n_keys // 2)] = True
    with torch.inference_mode():
        assert decode.supports(q, k, v, mask)
        found = decode.scaled_dot_product_attention(q, k, v, mask)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)
    assert_close(found.double(), exact, rtol=0, atol=tolerance * float(exact.abs().max()))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("shape", [(2, 2, 4, 150, 16), (1, 3, 17, 40, 24)])
def test_it_is_attention_of_beams(shape, dtype, tolerance, device, shared):
    if device.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter cannot multiply matrices of bfloat16")
    assert_is_attention_of_beams(*shape, dtype, tolerance, device, shared=shared)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("shape", [(512, 8, 5, 320, 64), (1, 8, 4, 256, 64), (3, 12, 32, 1000, 128)])
def test_it_is_attention_of_beams_at_size(shape, dtype, tolerance, shared):
    assert_is_attention_of_beams(*shape, dtype, tolerance, torch.device("cuda"), shared=shared)


@torch.inference_mode()
def test_multi_head_attention_takes_it_for_a_step(device, used):
    torch.manual_seed(0)
    attention, cache = MultiHeadAttention(32, 2).to(device), KVCache()
    query, kv = torch.randn(1, 1, 32, device=device), KeyValue(*torch.randn(2, 1, 2, 3, 16, device=device))
    positions = (torch.zeros(1, n, dtype=torch.long, device=device) for n in (1, 3))
    attention.cross_attend(query, kv, AttentionMask(*positions))
    assert "decode_attention" not in used  # there is no mask
    x, position = torch.randn(2, 1, 32, device=device), torch.zeros(2, 1, dtype=torch.long, device=device)
    mask = torch.ones(2, 1, 1, 1, dtype=torch.bool, device=device)
    found = attention(x, AttentionMask(position, position, mask), cache)
    assert "decode_attention" in used
    with dispatch.disabled():
        assert_close(attention(x, AttentionMask(position, position, mask), KVCache()), found)


def test_it_is_left_alone_where_it_cannot_serve(device):
    q, k = torch.randn(2, 4, 1, 64, device=device), torch.randn(2, 4, 9, 64, device=device)
    mask = torch.ones(2, 1, 1, 9, device=device, dtype=torch.bool)
    assert not decode.supports(q, k, k, mask)  # gradients are asked for
    with torch.no_grad():
        assert decode.supports(q, k, k, mask)
        assert not decode.supports(q, k, k, None)
        assert not decode.supports(q, k, k, mask.float())  # added to scores
        assert not decode.supports(q, k, k, mask[:1])
        assert not decode.supports(q, k[:1], k[:1], mask[:1])
        assert not decode.supports(q.double(), k.double(), k.double(), mask)
        assert decode.supports(q.expand(2, 4, 32, 64), k, k, mask)
        assert not decode.supports(q.expand(2, 4, 33, 64), k, k, mask)
        assert not decode.supports(q.expand(2, 4, 3, 64), k, k, mask.expand(2, 1, 2, 9))
        assert not decode.supports(q, k, k[..., :32], mask)
        assert not decode.supports(q[..., ::2], k[..., ::2], k[..., ::2], mask)
