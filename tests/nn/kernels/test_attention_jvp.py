"""The kernel of attention's derivative against torch's forward differentiation, and plain PyTorch's too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import jvp
from torch.testing import assert_close

from regard.nn.kernels import dispatch, plain


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def drawn(n_queries: int, n_keys: int, d_key: int, d_value: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Draw what the operation takes, three directions and two heads, and work out what it gives, in float64."""
    torch.manual_seed(0)
    shapes = (n_queries, d_key), (n_keys, d_key), (n_keys, d_value)
    q, k, v = (torch.randn(2, *shape, dtype=torch.float64, device=device) for shape in shapes)
    dq, dk, dv = (torch.randn(3, 2, *shape, dtype=torch.float64, device=device) for shape in shapes)
    moved = [jvp(attention, (q, k, v), each)[1] for each in zip(dq, dk, dv, strict=True)]
    p = (q @ k.mT / d_key**0.5).softmax(-1)
    tangents = [each.permute(2, 0, 1, 3).flatten(2) for each in (dq, dk, dv)]
    return [*tangents, q, k, v, p, attention(q, k, v)], torch.stack(moved).permute(2, 0, 1, 3).flatten(2)


@pytest.mark.parametrize("sizes", [(5, 7, 4, 6), (70, 65, 16, 16)])
def test_plain_is_the_derivative(sizes):
    given, wanted = drawn(*sizes, torch.device("cpu"))
    assert_close(plain.attention_jvp(*given), wanted)


@pytest.mark.parametrize("sizes", [(5, 7, 4, 6), (70, 65, 16, 24)])
def test_it_is_the_derivative(sizes, device, used):
    pytest.importorskip("regard.nn.kernels.attention_jvp")
    given, wanted = drawn(*sizes, device)
    found = dispatch.attention_jvp(*(each.half() for each in given))
    assert used == ["attention_jvp"]
    assert_close(found.double(), wanted, rtol=0, atol=1e-2 * float(wanted.abs().max()))


@pytest.mark.parametrize("still", [("dk",), ("dv",), ("dk", "dv")])
def test_keys_and_values_may_stand_still(still, device):
    kernel = pytest.importorskip("regard.nn.kernels.attention_jvp")
    given, _ = drawn(20, 30, 16, 8, device)
    zero = [torch.zeros_like(each) if name in still else each for name, each in zip(("dq", "dk", "dv"), given)]  # noqa: B905
    none = [None if name in still else each.half() for name, each in zip(("dq", "dk", "dv"), given)]  # noqa: B905
    wanted = plain.attention_jvp(*zero, *given[3:])
    found = kernel.attention_jvp(*none, *(each.half() for each in given[3:]))
    assert_close(found.double(), wanted, rtol=0, atol=1e-2 * float(wanted.abs().max()))


def test_it_is_left_alone_where_it_cannot_serve(device):
    kernel = pytest.importorskip("regard.nn.kernels.attention_jvp")
    given = [each.half() for each in drawn(5, 7, 4, 6, device)[0]]
    assert kernel.supports(*given)
    assert not kernel.supports(*(each.float() for each in given))
    assert not kernel.supports(*(each.half() for each in drawn(5, 7, 136, 6, device)[0]))
    assert not kernel.supports(*given[:4], given[4].transpose(1, 2).contiguous().transpose(1, 2), *given[5:])
