"""Cross-entropy of rows of logits together with its gradient, one Triton kernel, for half precision on a CUDA device.

One program does a row: it reads it once for the online softmax, and a second time, from the cache, for the gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.triton_support import HALF_PRECISION, LOG2_E, jit, runs_on, tl

BLOCK_V = 4096
"""Logits of a row that are worked on together."""

LIMITS = "training"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device in this precision."""
    return dtype in HALF_PRECISION and runs_on(device)


def supports(logits: Tensor, target: Tensor, smoothing: float, n_classes: int, ignore_index: int) -> bool:
    """Return True if the kernel takes logits like these."""
    return available(logits.device, logits.dtype)


def cross_entropy_with_gradient(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float, n_classes: int, ignore_index: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Return the summed loss, the summed negative log-likelihood, and the gradient, rounded as the logits are."""
    d_logits, by_row = _cross_entropy(logits, target, smoothing, n_classes, ignore_index)
    loss, nll = by_row.sum(1)
    return loss, nll, d_logits


@torch.library.custom_op(
    "regard::cross_entropy_with_gradient",
    mutates_args=(),
    schema="(Tensor logits, Tensor target, float smoothing, int n_classes, int ignore_index) -> (Tensor, Tensor)",
)
def _cross_entropy(
    logits: Tensor, target: Tensor, smoothing: float, n_classes: int, ignore_index: int
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "2 N"]]:
    """Return the gradient by the logits, of which the first `n_classes` count, and each row's loss and nll."""
    d_logits, by_row = _empty_outputs(logits)
    _cross_entropy_kernel[(len(logits),)](
        logits, target, d_logits, by_row, len(logits), logits.shape[1], n_classes, smoothing,
        IGNORE_INDEX=ignore_index, SMOOTHED=smoothing > 0, BLOCK_V=BLOCK_V, num_warps=8,
    )  # fmt: skip
    return d_logits, by_row


@_cross_entropy.register_fake
def _(logits: Tensor, target: Tensor, smoothing: float, n_classes: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    return _empty_outputs(logits)


def _empty_outputs(logits: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(logits), logits.new_empty(2, len(logits), dtype=torch.float32)


@jit
def _cross_entropy_kernel(  # type: ignore[no-untyped-def]
    logits, target, d_logits, by_row, n_rows, width, n_classes, smoothing,
    IGNORE_INDEX: tl.constexpr, SMOOTHED: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Compute ``-(1 - e) log p(label) - e mean_v log p(v)`` and ``softmax - (1 - e) onehot - e / V`` of one row.

    Both are zero where the label is to be ignored. Logits, m and lse are to base 2, as exp2 takes them.
    """
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(target + row)
    counted = tl.where(label == IGNORE_INDEX, 0.0, 1.0)
    x_row = logits + row * width
    x_label = tl.load(x_row + tl.maximum(label, 0)).to(tl.float32)
    m, l, x_sum = float("-inf"), 0.0, 0.0
    for start in tl.range(0, n_classes, BLOCK_V, num_stages=3):
        i = start + tl.arange(0, BLOCK_V)
        # Masked by width, not n_classes: whole blocks are read.
        x = tl.load(x_row + i, mask=i < width, eviction_policy="evict_last").to(tl.float32) * LOG2_E
        if SMOOTHED:
            x_sum += tl.sum(tl.where(i < n_classes, x, 0.0), 0)
        x = tl.where(i < n_classes, x, float("-inf"))
        m_new = tl.maximum(m, tl.max(x, 0))
        l = l * tl.exp2(m - m_new) + tl.sum(tl.exp2(x - m_new), 0)
        m = m_new
    lse = m + tl.log2(l)
    nll = (lse - x_label * LOG2_E) / LOG2_E
    loss = (1.0 - smoothing) * nll + smoothing * (lse - x_sum / n_classes) / LOG2_E
    tl.store(by_row + row, loss * counted)
    tl.store(by_row + n_rows + row, nll * counted)
    for start in tl.range(0, width, BLOCK_V, num_stages=3):
        i = start + tl.arange(0, BLOCK_V)
        x = tl.load(x_row + i, mask=i < width, eviction_policy="evict_first").to(tl.float32) * LOG2_E
        onehot = tl.where(i == label, 1.0 - smoothing, 0.0) + smoothing / n_classes
        dx = tl.where(i < n_classes, (tl.exp2(x - lse) - onehot) * counted, 0.0)
        tl.store(d_logits + row * width + i, dx.to(d_logits.dtype.element_ty), mask=i < width, cache_modifier=".cs")
