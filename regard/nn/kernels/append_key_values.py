"""Keys and values of the next tokens written to a static KV cache, in Triton on a CUDA device: both by one launch."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, jit, runs_on, tile_size, tl

LIMITS = "keys as wide as values, in the precision of the cache, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision, within its limits."""
    return dtype in (torch.float32, *HALF_PRECISION) and runs_on(device)


def supports(key_cache: Tensor, value_cache: Tensor, key: Tensor, value: Tensor, columns: Tensor) -> bool:
    """Return True if the kernel takes such tensors."""
    tensors = (key_cache, value_cache, key, value)
    alike = key.shape == value.shape and all(x.dtype == key.dtype and x.stride(3) == 1 for x in tensors)
    has_columns = columns.shape == key.shape[::2] and columns.is_contiguous() and key.numel() > 0
    return alike and has_columns and not torch.is_grad_enabled() and available(key.device, key.dtype)


def append_key_values(
    key_cache: Float[Tensor, "B H K E"],
    value_cache: Float[Tensor, "B H K E"],
    key: Float[Tensor, "B H W E"],
    value: Float[Tensor, "B H W E"],
    columns: Int[Tensor, "B W"],
) -> None:
    """Write W tokens of each row to its columns of the cache."""
    n_rows, n_heads, n_tokens, d_head = key.shape
    strides = [stride for x in (key_cache, value_cache, key, value) for stride in x.stride()[:3]]
    _append_kernel[n_rows, n_tokens](
        key_cache, value_cache, key, value, columns, *strides, n_tokens, n_heads * d_head, d_head,
        BLOCK=tile_size(n_heads * d_head),
    )  # fmt: skip


@jit
def _append_kernel(  # type: ignore[no-untyped-def]
    key_cache, value_cache, key, value, columns,
    kc_row, kc_head, kc_token, vc_row, vc_head, vc_token, k_row, k_head, k_token, v_row, v_head, v_token,
    n_tokens, d, d_head, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one token of a row."""
    b, t = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    h, e = i // d_head, i % d_head
    column = tl.load(columns + b * n_tokens + t)
    k = tl.load(key + b * k_row + t * k_token + h * k_head + e, mask=i < d, other=0.0)
    v = tl.load(value + b * v_row + t * v_token + h * v_head + e, mask=i < d, other=0.0)
    tl.store(key_cache + b * kc_row + column * kc_token + h * kc_head + e, k, mask=i < d)
    tl.store(value_cache + b * vc_row + column * vc_token + h * vc_head + e, v, mask=i < d)
