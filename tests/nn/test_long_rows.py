"""The kernels of long rows against attention as it is written, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.nn import AttentionMask, MultiHeadAttention, PackedPositions, long_rows, make_mask, record

pytestmark = pytest.mark.filterwarnings("ignore")  # the compiler's own
on_gpu = pytest.mark.gpu(generations=long_rows.GENERATIONS)


def packed(rows: int, length: int, *, causal: bool, texts: int = 3) -> AttentionMask:
    """A few texts to a row and empty places after them; the last row has none at all."""
    segment = torch.randint(1, texts + 2, (rows, length)).sort(1).values
    segment[segment > texts] = 0
    segment[-1] = 0
    place = PackedPositions(segment.cuda(), torch.arange(length, device="cuda").expand(rows, -1))
    return make_mask(place, causal=causal)


def written(projected: Tensor, sight: AttentionMask, n_heads: int) -> Tensor:
    """Attention as in the paper."""
    query, key, value = (each.unflatten(-1, (n_heads, -1)).transpose(1, 2) for each in projected.chunk(3, -1))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~sight.mask, -torch.inf).softmax(-1).masked_fill(sight.fully_masked, 0.0)
    return (weights @ value).transpose(1, 2).flatten(2)


def both(mix, projected: Tensor, sight: AttentionMask, n_heads: int) -> list[Tensor]:
    """What is mixed, and the gradient of the projection."""
    projected = projected.detach().requires_grad_()
    out = mix(projected, sight, n_heads)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad(out, projected, direction)]


def ours(projected: Tensor, sight: AttentionMask, n_heads: int) -> Tensor:
    return long_rows.within_rows(projected, sight.layout, n_heads)


def test_bounds_are_where_texts_begin_and_end():
    segment = torch.tensor([[1, 1, 2, 3, 3, 3, 0, 0], [0] * 8, [1] * 8])
    begin, end = long_rows.bounds(segment)
    assert begin.tolist() == [[0, 0, 2, 3, 3, 3, 6, 6], [0] * 8, [0] * 8]
    assert end.tolist() == [[2, 2, 3, 6, 6, 6, 6, 6], [0] * 8, [8] * 8]
    assert begin.dtype == end.dtype == torch.int32


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "heads", "width"), [(1024, 2, 64), (512, 4, 64), (129, 3, 40), (300, 2, 128), (777, 1, 16), (256, 2, 8)]
)
def test_it_is_attention(length, heads, width, causal):
    torch.manual_seed(0)
    projected, sight = torch.randn(4, length, 3 * heads * width, device="cuda"), packed(4, length, causal=causal)
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
        rounded = projected.to(dtype)
        assert long_rows.usable(rounded, width)
        exact = both(written, rounded.double(), sight, heads)
        for found, wanted in zip(both(ours, rounded, sight, heads), exact, strict=True):
            assert_close(found.double(), wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_short_texts_among_long_ones(causal):
    torch.manual_seed(0)
    lengths = torch.tensor([1, 1, 200, 3, 64, 1, 128, 100])
    segment = torch.arange(1, 9).repeat_interleave(lengths)[None].cuda()
    sight = make_mask(PackedPositions(segment, torch.arange(498, device="cuda")[None]), causal=causal)
    projected = torch.randn(1, 498, 3 * 64, device="cuda", dtype=torch.float16)
    for found, wanted in zip(both(ours, projected, sight, 1), both(written, projected.double(), sight, 1), strict=True):
        assert_close(found.double(), wanted, rtol=0, atol=3e-3 * float(wanted.abs().max()))


@on_gpu
def test_blank_queries_get_zeros_and_hand_nothing_back():
    torch.manual_seed(0)
    sight = packed(4, 200, causal=False)
    projected = torch.randn(4, 200, 3 * 64, device="cuda", dtype=torch.float16)
    out, grad = both(ours, projected, sight, 4)
    blank = sight.fully_masked[:, 0, :, 0]
    assert blank.any()
    assert not out[blank].any()
    assert not grad[blank].any()
    assert torch.isfinite(grad).all()


@on_gpu
def test_attention_goes_through_it_and_gives_the_same(monkeypatch):
    torch.manual_seed(0)
    used, within_rows = [], long_rows.within_rows
    monkeypatch.setattr(long_rows, "within_rows", lambda *given: used.append(given) or within_rows(*given))
    attention, sight = MultiHeadAttention(96, 2).cuda(), packed(3, 150, causal=True)
    x = torch.randn(3, 150, 96, device="cuda")
    with record(attention, "weights"):
        wanted = attention.double()(x.double(), sight)
    assert not used
    found = attention.bfloat16()(x.bfloat16(), sight)
    assert len(used) == 1
    assert_close(found.double(), wanted, rtol=0, atol=3e-2 * float(wanted.abs().max()))


@on_gpu
def test_it_gives_the_same_twice():
    torch.manual_seed(0)
    sight = packed(4, 640, causal=True)
    projected = torch.randn(4, 640, 3 * 128, device="cuda", dtype=torch.bfloat16)
    for found, wanted in zip(*(both(ours, projected, sight, 2) for _ in range(2)), strict=True):
        assert torch.equal(found, wanted)


@on_gpu
def test_it_can_be_compiled():
    torch.manual_seed(0)
    sight = packed(4, 256, causal=True)
    projected = torch.randn(4, 256, 3 * 128, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(ours, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        for found, wanted in zip(both(compiled, projected, sight, 2), both(ours, projected, sight, 2), strict=True):
            assert torch.equal(found, wanted)


@on_gpu
def test_what_it_does_not_take_goes_the_other_way():
    half = torch.zeros(2, 129, 3 * 64, device="cuda", dtype=torch.float16)
    assert long_rows.usable(half, 64)
    assert not long_rows.usable(half.float(), 64)
    assert not long_rows.usable(half.cpu(), 64)
    assert not long_rows.usable(half[:, :128], 64)
    assert not long_rows.usable(torch.zeros(1, 4097, 192, device="cuda", dtype=torch.float16), 64)
    assert not long_rows.usable(half, 12)
    assert not long_rows.usable(half, 192)
