"""Cross-entropy of rows of logits with its gradient in one kernel, for half precision on a CUDA device.

One program does a row: it goes over it for the softmax, and a second time for the gradient.
nn/loss.py has the same in torch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import IGNORE
from regard.nn.kernels import BITS, HALF, constant, kernel, runnable, tl

IGNORED = constant(IGNORE)
WIDTH = 4096
"""Logits of a row that are worked on together."""


def usable(logits: Tensor) -> bool:
    return logits.dtype in HALF and runnable(logits)


@torch.library.custom_op(
    "regard::loss_rows",
    mutates_args=(),
    schema="(Tensor logits, Tensor target, float smoothing, int size) -> (Tensor, Tensor)",
)
def loss_rows(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float, size: int
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "2 N"]]:
    """The gradient by the logits, of which the first `size` are some; the loss of each row, and its likelihood's."""
    gradient, sums = torch.empty_like(logits), logits.new_empty(2, len(logits), dtype=torch.float32)
    _loss_kernel[(len(logits),)](
        logits, target, gradient, sums, len(logits), logits.shape[1], size, smoothing,
        SMOOTH=smoothing > 0, TILE=WIDTH, num_warps=8,
    )  # fmt: skip
    return gradient, sums


@loss_rows.register_fake
def _(logits: Tensor, target: Tensor, smoothing: float, size: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(logits), logits.new_empty(2, len(logits), dtype=torch.float32)


@kernel
def _loss_kernel(  # type: ignore[no-untyped-def]
    logits, target, gradient, sums, n_rows, width, size, smoothing, SMOOTH: tl.constexpr, TILE: tl.constexpr
):
    """``-(1 - e) log p(target) - e mean_v log p(v)`` and ``softmax - (1 - e) onehot - e / V``; zeros where ignored."""
    row = tl.program_id(0).to(tl.int64)
    wanted = tl.load(target + row)
    share = tl.where(wanted == IGNORED, 0.0, 1.0)
    own = logits + row * width
    chosen = tl.load(own + tl.maximum(wanted, 0)).to(tl.float32)
    top, total, added = float("-inf"), 0.0, 0.0  # in bits, as exp2 takes them
    for start in tl.range(0, size, TILE, num_stages=3):
        i = start + tl.arange(0, TILE)
        x = tl.load(own + i, mask=i < width, eviction_policy="evict_last").to(tl.float32) * BITS  # whole tiles are read
        if SMOOTH:
            added += tl.sum(tl.where(i < size, x, 0.0), 0)
        x = tl.where(i < size, x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(x - higher), 0)
        top = higher
    normaliser = top + tl.log2(total)
    nll = (normaliser - chosen * BITS) / BITS
    loss = (1.0 - smoothing) * nll + smoothing * (normaliser - added / size) / BITS
    tl.store(sums + row, loss * share)
    tl.store(sums + n_rows + row, nll * share)
    for start in tl.range(0, width, TILE, num_stages=3):
        i = start + tl.arange(0, TILE)
        x = tl.load(own + i, mask=i < width, eviction_policy="evict_first").to(tl.float32) * BITS
        less = tl.where(i == wanted, 1.0 - smoothing, 0.0) + smoothing / size
        x = tl.where(i < size, (tl.exp2(x - normaliser) - less) * share, 0.0)
        tl.store(gradient + row * width + i, x.to(gradient.dtype.element_ty), mask=i < width, cache_modifier=".cs")
