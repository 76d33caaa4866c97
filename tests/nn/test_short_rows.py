"""The kernels of short rows against attention as it is written, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.nn import AttentionMask, MultiHeadAttention, PackedPositions, make_mask, record, short_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]


def packed(rows: int, length: int, *, causal: bool) -> AttentionMask:
    """Three texts to a row, and empty positions that see nothing; in the last row there are no others."""
    segment = torch.randint(0, 4, (rows, length)).sort(1).values.cuda()
    segment[-1] = 0
    place = PackedPositions(segment, torch.arange(length, device="cuda").expand(rows, -1))
    return make_mask(place, causal=causal)


def both(attention: MultiHeadAttention, x: Tensor, sight: AttentionMask, *, explicit: bool) -> list[Tensor]:
    """What an attention gives, and the gradient of its input and of its weights."""
    x = x.detach().requires_grad_()
    listening = {"weights"} if explicit else set()
    with record(attention, *listening):
        out = attention(x, sight)
    wanted = [x, *attention.parameters()]
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad((out * direction).sum(), wanted)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "heads", "width"), [(128, 4, 64), (100, 3, 40), (17, 2, 16), (64, 1, 8)])
def test_it_is_attention(length, heads, width, causal):
    torch.manual_seed(0)
    attention = MultiHeadAttention(heads * width, heads).cuda()
    x, sight = torch.randn(5, length, heads * width, device="cuda"), packed(5, length, causal=causal)
    exact = both(attention.double(), x.double(), sight, explicit=True)
    for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
        attention.to(dtype)
        assert short_rows.usable(attention.projection(x.to(dtype)), width)
        for ours, wanted in zip(both(attention, x.to(dtype), sight, explicit=False), exact, strict=True):
            assert_close(ours.double(), wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


def test_blank_queries_get_zeros_and_hand_nothing_back():
    torch.manual_seed(0)
    sight = packed(4, 32, causal=False)
    projected = torch.randn(4, 32, 3 * 64, device="cuda", dtype=torch.float16, requires_grad=True)
    out = short_rows.within_rows(projected, sight.layout, 4)
    (grad,) = torch.autograd.grad(out.sum(), projected)
    blank = sight.fully_masked[:, 0, :, 0]
    assert blank.any()
    assert not out[blank].any()
    assert not grad[blank].any()
    assert torch.isfinite(grad).all()


def test_attention_goes_through_it(monkeypatch):
    used, within_rows = [], short_rows.within_rows
    monkeypatch.setattr(short_rows, "within_rows", lambda *given: used.append(given) or within_rows(*given))
    attention, sight = MultiHeadAttention(64, 2).cuda().bfloat16(), packed(3, 50, causal=True)
    x = torch.randn(3, 50, 64, device="cuda", dtype=torch.bfloat16)
    with record(attention, "weights"):
        attention(x, sight)
    assert not used
    attention(x, sight)
    assert len(used) == 1


def test_compiled_or_not_it_gives_the_same_each_time():
    torch.manual_seed(0)
    sight = packed(4, 100, causal=True)
    projected = torch.randn(4, 100, 3 * 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def both_ways(run) -> list[Tensor]:
        out = run(projected, sight.layout, 2)
        return [out.detach().clone(), *torch.autograd.grad(out.float().square().sum(), projected)]

    first = both_ways(short_rows.within_rows)
    compiled = torch.compile(short_rows.within_rows, fullgraph=True, mode="reduce-overhead")
    for run in (short_rows.within_rows, compiled, compiled, compiled):
        for found, wanted in zip(both_ways(run), first, strict=True):
            assert torch.equal(found, wanted)


def test_what_it_does_not_take_goes_the_other_way():
    half = torch.zeros(2, 128, 3 * 64, device="cuda", dtype=torch.float16)
    assert short_rows.usable(half, 64)
    assert not short_rows.usable(half.float(), 64)
    assert not short_rows.usable(half.cpu(), 64)
    assert not short_rows.usable(torch.zeros(2, 129, 192, device="cuda", dtype=torch.float16), 64)
    assert not short_rows.usable(half, 128)
