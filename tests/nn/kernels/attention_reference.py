"""Packed rows to try kernels of attention with, and attention as it is written in the paper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.nn import AttentionMask, PackedPositions, make_mask

Attend = Callable[[Tensor, AttentionMask, int], Tensor]


def packed(n_rows: int, n_tokens: int, device: torch.device, *, causal: bool, n_segments: int = 3) -> AttentionMask:
    """Draw the mask of rows with a few segments and padding after them; the last row is all padding."""
    segment = torch.randint(1, n_segments + 2, (n_rows, n_tokens)).sort(1).values
    segment[segment > n_segments] = 0
    segment[-1] = 0
    place = PackedPositions(segment.to(device), torch.arange(n_tokens, device=device).expand(n_rows, -1))
    return make_mask(place, causal=causal)


def explicit(qkv: Tensor, mask: AttentionMask, n_heads: int) -> Tensor:
    """Compute attention with explicit weights."""
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in qkv.chunk(3, -1))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask.mask, -torch.inf).softmax(-1).masked_fill(mask.fully_masked, 0.0)
    return (weights @ v).transpose(1, 2).flatten(2)


def with_gradient(attend: Attend, qkv: Tensor, mask: AttentionMask, n_heads: int) -> list[Tensor]:
    """Return the output, and the gradient of the projection in a fixed direction."""
    qkv = qkv.detach().requires_grad_()
    o = attend(qkv, mask, n_heads)
    direction = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o)
    return [o.detach().clone(), *torch.autograd.grad(o, qkv, direction)]


def assert_is_attention(
    attend: Attend, n_rows: int, n_tokens: int, n_heads: int, d_head: int, device: torch.device, *, causal: bool
) -> None:
    """Check output and gradient against attention in float64 of the same rounded inputs.

    That is in both half precisions on a GPU; Triton's interpreter cannot multiply matrices of bfloat16.
    """
    torch.manual_seed(0)
    qkv, mask = torch.randn(n_rows, n_tokens, 3 * n_heads * d_head), packed(n_rows, n_tokens, device, causal=causal)
    tolerances = {torch.float16: 4e-3} if device.type == "cpu" else {torch.float16: 4e-3, torch.bfloat16: 2e-2}
    for dtype, tolerance in tolerances.items():
        rounded = qkv.to(device, dtype)
        exact = with_gradient(explicit, rounded.double(), mask, n_heads)
        for found, wanted in zip(with_gradient(attend, rounded, mask, n_heads), exact, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))
        fully_masked = mask.fully_masked[:, 0, :, 0]
        assert fully_masked.any()
        for found in with_gradient(attend, rounded, mask, n_heads):
            assert not found[fully_masked].any()
            assert torch.isfinite(found).all()
