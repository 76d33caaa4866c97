"""Cross-entropy with label smoothing, as sums with a count: averages are exact over any split of the batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batches import IGNORE


class Loss(NamedTuple):
    """What is minimised, summed over tokens; beside it the plain negative log-likelihood and the tokens."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    n_tokens: Int[Tensor, ""]


def cross_entropy(logits: Float[Tensor, "*B V"], target: Int[Tensor, "*B"], smoothing: float = 0.0) -> Loss:
    """``-(1 - e) log p(target) - e mean_v log p(v)``, summed over the targets that are not IGNORE."""
    total, nll = _CrossEntropy.apply(logits.flatten(0, -2), target.flatten().long(), smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (target != IGNORE).sum())


class _CrossEntropy(torch.autograd.Function):
    """Both passes touch the logits as few times as they can: they are the largest tensors of a training step."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        counts = target != IGNORE
        normaliser = wide.logsumexp(-1)
        nll = normaliser - wide.gather(-1, target.clamp(min=0)[:, None]).squeeze(-1)
        total = (1 - smoothing) * nll + smoothing * (normaliser - wide.mean(-1)) if smoothing else nll
        ctx.save_for_backward(logits, target, normaliser)
        ctx.smoothing = smoothing
        nll_sum = torch.where(counts, nll, 0.0).sum()
        ctx.mark_non_differentiable(nll_sum)
        return torch.where(counts, total, 0.0).sum(), nll_sum

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """``softmax - e / V - (1 - e) onehot`` at each counted position."""
        logits, target, normaliser = ctx.saved_tensors
        share = torch.where(target != IGNORE, gradients[0], 0.0)[:, None]
        onehot = torch.arange(logits.shape[-1], device=logits.device) == target[:, None]
        gradient = (logits - normaliser[:, None]).exp_()
        gradient.add_(onehot, alpha=ctx.smoothing - 1).sub_(ctx.smoothing / logits.shape[-1]).mul_(share)
        return gradient.to(logits.dtype), None, None
