"""InfoNCE with in-batch negatives: multiple negatives ranking (Henderson et al. 2017), SimCSE (Gao et al. 2021)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def info_nce(
    anchors: Float[Tensor, "N D"],
    candidates: Float[Tensor, "candidates D"],
    anchor_groups: Int[Tensor, " N"],
    candidate_groups: Int[Tensor, " candidates"],
    temperature: float,
) -> Float[Tensor, " N"]:
    """Return ``-log exp(a_i . c_i / t) / sum_j exp(a_i . c_j / t)`` for each anchor, whose positive has its index.

    Another candidate of an anchor's own group is no negative of it: it is left out of the sum. Group 0 is padding,
    which is no candidate and has no loss.
    """
    scores = anchors.float() @ candidates.float().T / temperature
    index = torch.arange(len(candidates), device=scores.device)
    is_positive = index[: len(anchors), None] == index
    excluded = (anchor_groups[:, None] == candidate_groups) | (candidate_groups == 0)
    log_sum = scores.masked_fill(excluded & ~is_positive, -math.inf).logsumexp(-1)
    losses: Tensor = torch.where(anchor_groups > 0, log_sum - scores.diagonal(), 0.0)
    return losses
