"""Self-attention within the sentences of packed rows on a CPU, in C (native/packed_attention.c).

A sentence is attended to by itself, so what is computed for it is the same whatever else is in its row and batch.
"""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import library
from regard.nn.mask import AttentionMask

MAX_TOKENS = 256
"""Longer sentences are left to torch, which multiplies blocks of queries."""

LIMITS = f"sentences of at most {MAX_TOKENS} tokens, heads that fill vectors, without gradients"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, dtype)


def supports(qkv: Tensor, mask: AttentionMask, n_heads: int) -> bool:
    """Return True for sentences that are short enough."""
    if torch.is_grad_enabled() or not available(qkv.device, qkv.dtype) or mask.layout is None:
        return False
    width = qkv.shape[2] // (3 * n_heads)
    longest = max(mask.lengths, default=qkv.shape[1])
    is_plain = qkv.is_contiguous() and not torch.compiler.is_compiling()
    return is_plain and longest <= MAX_TOKENS and width % library().regard_lanes() == 0


def packed_self_attention(qkv: Float[Tensor, "B T HEEE"], mask: AttentionMask, n_heads: int) -> Float[Tensor, "B T HE"]:
    """Return attention within each segment of packed rows, from q, k and v of all heads side by side."""
    assert mask.layout is not None
    n_rows, n_tokens, width = qkv.shape
    segment = mask.layout.positions.segment.long().contiguous()
    out = qkv.new_empty(n_rows, n_tokens, width // 3)
    numbers = (n_rows, n_tokens, n_heads, width // (3 * n_heads), mask.layout.causal)
    library().regard_packed_attention(
        ctypes.c_void_p(qkv.data_ptr()),
        ctypes.c_void_p(segment.data_ptr()),
        *map(ctypes.c_int64, numbers),
        ctypes.c_void_p(out.data_ptr()),
    )
    return out
