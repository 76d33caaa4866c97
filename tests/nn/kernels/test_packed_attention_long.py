"""Kernels of long packed rows against attention with explicit weights, forward and backward."""

from __future__ import annotations

import pytest
import torch
from attention_reference import assert_is_attention, explicit, packed, with_gradient
from torch.testing import assert_close

from regard.nn import MultiHeadAttention, PackedPositions, make_mask, record
from regard.nn.kernels.packed_row_blocks import segment_bounds

long = pytest.importorskip("regard.nn.kernels.packed_attention_long")
attend = long.packed_self_attention

# Scores of queries with nothing to attend to overflow before they are replaced by zeros.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp2:RuntimeWarning")
on_gpu = pytest.mark.gpu(capabilities=long.CAPABILITIES)
DEVICES = [pytest.param("interpreter"), pytest.param("cuda", marks=on_gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of a test that runs in the interpreter, and again on a GPU of the kernels' capability."""
    return request.getfixturevalue("interpreter") if request.param == "interpreter" else torch.device("cuda")


def test_bounds_are_where_segments_begin_and_end():
    segment = torch.tensor([[1, 1, 2, 3, 3, 3, 0, 0], [0] * 8, [1] * 8])
    begin, end = segment_bounds(segment)
    assert begin.tolist() == [[0, 0, 2, 3, 3, 3, 6, 6], [0] * 8, [0] * 8]
    assert end.tolist() == [[2, 2, 3, 6, 6, 6, 6, 6], [0] * 8, [8] * 8]
    assert begin.dtype == end.dtype == torch.int32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_heads", "d_head"), [(150, 2, 8), (192, 1, 24), (130, 1, 72)])
def test_it_is_attention(n_tokens, n_heads, d_head, causal, device):
    assert_is_attention(attend, 2, n_tokens, n_heads, d_head, device, causal=causal)


@on_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("n_tokens", "n_heads", "d_head"),
    [(1024, 2, 64), (512, 4, 64), (129, 3, 40), (300, 2, 128), (777, 1, 16), (256, 2, 8)],
)
def test_it_is_attention_at_size(n_tokens, n_heads, d_head, causal):
    assert_is_attention(attend, 4, n_tokens, n_heads, d_head, torch.device("cuda"), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_short_segments_among_long_ones(causal, device):
    """Every way in which a block may meet the ends of segments."""
    torch.manual_seed(0)
    lengths = torch.tensor([1, 1, 200, 3, 64, 1, 128, 100])
    segment = torch.arange(1, 9).repeat_interleave(lengths)[None].to(device)
    mask = make_mask(PackedPositions(segment, torch.arange(498, device=device)[None]), causal=causal)
    qkv = torch.randn(1, 498, 3 * 16, device=device, dtype=torch.float16)
    exact = with_gradient(explicit, qkv.double(), mask, 1)
    for found, wanted in zip(with_gradient(attend, qkv, mask, 1), exact, strict=True):
        assert_close(found.double(), wanted, rtol=0, atol=3e-3 * float(wanted.abs().max()))


def test_multi_head_attention_takes_it_unless_weights_are_recorded(device, used):
    torch.manual_seed(0)
    attention, mask = MultiHeadAttention(16, 1).to(device).half(), packed(2, 140, device, causal=True)
    x = torch.randn(2, 140, 16, device=device, dtype=torch.float16)
    with record(attention, "weights"):
        wanted = attention(x, mask).detach()
    assert not used
    found = attention(x, mask).detach()
    assert used == ["packed_attention_long"]
    assert_close(found, wanted, rtol=0, atol=4e-3 * float(wanted.abs().max()))


@on_gpu
def test_it_gives_the_same_twice():
    torch.manual_seed(0)
    mask = packed(4, 640, torch.device("cuda"), causal=True)
    qkv = torch.randn(4, 640, 3 * 128, device="cuda", dtype=torch.bfloat16)
    for found, wanted in zip(*(with_gradient(attend, qkv, mask, 2) for _ in range(2)), strict=True):
        assert torch.equal(found, wanted)


def test_it_takes_half_precision_within_its_limits(device):
    mask = packed(1, 8, device, causal=False)
    half = torch.zeros(2, 129, 3 * 192, device=device, dtype=torch.float16)
    assert long.supports(half, mask, 3)
    assert not long.supports(half.float(), mask, 3)
    assert not long.supports(half[:, :128], mask, 3)
    assert not long.supports(half, mask, 1)  # a width of 192
    assert not long.supports(half, mask, 16)  # a width of 12
    assert not long.supports(torch.zeros(1, 4097, 192, device=device, dtype=torch.float16), mask, 3)
