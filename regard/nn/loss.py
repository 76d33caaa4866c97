"""Cross-entropy with label smoothing, as sums with a count: averages are exact over any split of the batch."""

from __future__ import annotations

from typing import NamedTuple

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
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    counts = target != IGNORE
    normaliser = wide.logsumexp(-1)
    chosen = wide.gather(-1, target.clamp(min=0).long()[..., None]).squeeze(-1)
    nll = normaliser - chosen
    total = (1 - smoothing) * nll + smoothing * (normaliser - wide.mean(-1)) if smoothing else nll
    zero = torch.zeros((), dtype=wide.dtype, device=wide.device)
    return Loss(torch.where(counts, total, zero).sum(), torch.where(counts, nll, zero).sum().detach(), counts.sum())
