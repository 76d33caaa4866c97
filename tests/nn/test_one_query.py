"""The kernel for one query in each row against attention as torch has it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn import one_query

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize(
    ("rows", "heads", "keys", "width"), [(3, 2, 200, 64), (1, 12, 512, 64), (2, 3, 7, 24), (64, 4, 65, 128)]
)
@torch.inference_mode()
def test_it_is_attention(rows: int, heads: int, keys: int, width: int, dtype: torch.dtype, tolerance: float) -> None:
    """Of a query that lies within a projection, over memory of which most is room."""
    torch.manual_seed(0)
    query = torch.randn(rows, 1, 3, heads, width, device="cuda", dtype=dtype)[:, :, 1].transpose(1, 2)
    key, value = torch.randn(2, rows, heads, keys, width, device="cuda", dtype=dtype)
    allowed = torch.rand(rows, 1, 1, keys, device="cuda") < 0.5
    allowed[..., 0], allowed[..., keys // 2 + 1 :] = True, False
    assert one_query.usable(query, key, value, allowed)
    exact = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), attn_mask=allowed)
    found = one_query.look(query, key, value, allowed)
    assert_close(found.double(), exact, rtol=0, atol=tolerance * float(exact.abs().max()))


def test_it_is_left_alone_where_it_cannot_serve() -> None:
    query, key = torch.randn(2, 4, 1, 64, device="cuda"), torch.randn(2, 4, 9, 64, device="cuda")
    allowed = torch.ones(2, 1, 1, 9, device="cuda", dtype=torch.bool)
    assert not one_query.usable(query, key, key, allowed)  # gradients are asked for
    with torch.no_grad():
        assert one_query.usable(query, key, key, allowed)
        assert not one_query.usable(query, key, key, allowed[:1])
        assert not one_query.usable(query, key[:1], key[:1], allowed[:1])
        assert not one_query.usable(query.double(), key.double(), key.double(), allowed)
        assert not one_query.usable(query.expand(2, 4, 2, 64), key, key, allowed)
        assert not one_query.usable(query, key, key[..., :32], allowed)
        assert not one_query.usable(query[..., ::2], key[..., ::2], key[..., ::2], allowed)
