"""The most likely tokens of each row of logits, on a CPU, in C: two passes over a row, which stays in a cache."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import library

MAX_TOKENS = 256
"""The most tokens of a row that are found by insertion."""

LIMITS = f"at most {MAX_TOKENS} tokens of a row"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, dtype)


def supports(logits: Tensor, n: int, eos_id: int, suppressed: Tensor) -> bool:
    """Return True for logits of float32 whose rows lie side by side."""
    is_plain = logits.is_contiguous() and suppressed.is_contiguous() and not logits.requires_grad
    return n <= MAX_TOKENS and is_plain and available(logits.device, logits.dtype)


def top_log_probs(
    logits: Float[Tensor, "N V"], n: int, eos_id: int, suppressed: Int[Tensor, " M"]
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
    """Return the log-probabilities of each row's `n` most likely tokens, those tokens, and that of ``<eos>``."""
    n_rows, size = logits.shape
    n = min(n, size)
    score, end = logits.new_empty(n_rows, n), logits.new_empty(n_rows)
    token = torch.empty(n_rows, n, dtype=torch.long)
    numbers = [ctypes.c_int64(each) for each in (n_rows, size, n, eos_id)]
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (score, token, end)]
    library().regard_top_log_probs(
        ctypes.c_void_p(logits.data_ptr()),
        *numbers,
        ctypes.c_void_p(suppressed.data_ptr()),
        ctypes.c_int64(len(suppressed)),
        *pointers,
    )
    return score, token, end
