"""The update of a beam search after each token, on a CPU, in C; plain_beam_update.py defines it.

In torch it takes thirty small operations, which hold the interpreter while another decoder may wait for it.
"""

from __future__ import annotations

import ctypes
from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import native_library
from regard.nn.kernels.native_library import library

MAX_CANDIDATES = 256
"""The most candidates of a step."""

LIMITS = f"at most {MAX_CANDIDATES} candidates"

BEAM_FIELDS = (
    *("token", "parent", "log_prob", "last_token", "cum_log_prob", "length", "max_length"),
    *("finished_score", "finished_length", "finished_beam", "finished_log_prob", "done", "has_failed"),
)
"""The tensors of beams, in the order of native/search.c."""


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel was compiled on this machine."""
    return native_library.is_loaded(device, torch.float32)


def supports(
    beams: Any, score: Tensor, token: Tensor, end: Tensor, length_penalties: Tensor, eos_id: int, n_candidates: int
) -> bool:
    """Return True if the kernel takes such beams."""
    tensors = [getattr(beams, field.name) for field in fields(beams)]
    are_plain = all(each.is_contiguous() for each in (*tensors, length_penalties))
    return n_candidates <= MAX_CANDIDATES and are_plain and score.numel() > 0 and available(score.device, score.dtype)


def advance_beams(
    beams: Any,
    score: Float[Tensor, "N C"],
    token: Int[Tensor, "N C"],
    end: Float[Tensor, " N"],
    length_penalties: Float[Tensor, " T2"],
    eos_id: int,
    n_candidates: int,
) -> Int[Tensor, "B W"]:
    """Write the next token of each beam, in place; return the beams they go on from."""
    n_sentences, width = beams.last_token.shape
    per_beam, n_extensions = score.shape[1], score.numel() // n_sentences
    parents = torch.empty_like(beams.last_token)
    best = (score.contiguous(), token.contiguous(), end.contiguous())
    inputs = (*best, length_penalties, *(getattr(beams, name) for name in BEAM_FIELDS), parents)
    numbers = (n_sentences, width, beams.token.shape[1], n_extensions // per_beam, per_beam)
    library().regard_advance_beams(
        (ctypes.c_void_p * len(inputs))(*(each.data_ptr() for each in inputs)),
        *map(ctypes.c_int64, (*numbers, min(n_candidates, n_extensions), eos_id)),
    )
    return parents
