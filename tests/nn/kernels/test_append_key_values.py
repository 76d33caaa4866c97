"""The kernel that writes to a static KV cache against indexing of torch: equal bit for bit."""

from __future__ import annotations

import pytest
import torch

from regard.nn import KeyValue, StaticBeamKVCache, allocate_key_values
from regard.nn.kernels import dispatch, plain

kernel = pytest.importorskip("regard.nn.kernels.append_key_values")


def inputs_of(device, dtype=torch.float32, n_rows=3, n_heads=2, n_tokens=3, capacity=12, d_head=20):
    torch.manual_seed(0)
    packed = torch.randn(n_rows, n_tokens, 3, n_heads, d_head, device=device).to(dtype)
    key, value = packed[:, :, 1].transpose(1, 2), packed[:, :, 2].transpose(1, 2)
    columns = torch.stack([torch.randperm(capacity)[:n_tokens] for _ in range(n_rows)]).to(device)
    return key, value, columns, *allocate_key_values(KeyValue(key, value), n_rows, capacity)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_it_writes_what_indexing_writes(dtype, device):
    key, value, columns, *cache = inputs_of(device, dtype)
    expected = [part.clone() for part in cache]
    assert kernel.supports(*cache, key, value, columns)
    kernel.append_key_values(*cache, key, value, columns)
    plain.append_key_values(*expected, key, value, columns)
    assert all(torch.equal(part, other) for part, other in zip(cache, expected, strict=True))
    assert cache[0].any()


@torch.inference_mode()
def test_the_cache_takes_it(device, used):
    key, value, columns, *cache = inputs_of(device)
    static = StaticBeamKVCache(KeyValue(*cache))
    static.columns = columns
    kv = static.append(KeyValue(key, value))
    assert used == ["append_key_values"]
    assert torch.equal(kv.value[1, :, columns[1, 2]], value[1, :, 2])


def test_it_is_left_alone_where_it_cannot_serve(device):
    key, value, columns, *cache = inputs_of(device)
    assert not kernel.supports(*cache, key, value, columns)  # gradients are asked for
    with torch.no_grad():
        assert kernel.supports(*cache, key, value, columns)
        assert not kernel.supports(*cache, key.double(), value.double(), columns)
        assert not kernel.supports(*cache, key, value[..., :8], columns)
        assert not kernel.supports(*cache, key, value, columns[:, :2])
        assert not kernel.supports(*cache, key, value, columns.T.contiguous().T)
    assert "append_key_values" in dispatch.OPERATIONS
