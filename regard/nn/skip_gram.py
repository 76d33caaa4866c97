"""The skip-gram objective with negative sampling (Mikolov et al. 2013), for blocks of consecutive words.

Word by word, its gradients are products of vectors, which are far slower than matrix multiplications. So the words of a
block are scored against one common list of columns: the words of the block and of its margins, of which each centre
counts those in its window, and negatives shared by the block (Ji et al. 2016):

               words of the block, with margins     shared negatives
    centre 1   + . + +                               - - - -
    centre 2     + + . + +                           - - - -
    centre 3         + + . +                         - - - -

Three matrix multiplications of a block give the scores and both gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.loss import Loss


def skip_gram_loss(
    centres: Float[Tensor, "blocks centres D"],
    columns: Float[Tensor, "blocks columns D"],
    n_before: Int[Tensor, "blocks centres"],
    n_after: Int[Tensor, "blocks centres"],
    *,
    window: int,
    negatives: int,
) -> Loss:
    """Return ``-log s(u_j v_i) - negatives E_k[log s(-u_k v_i)]`` of all pairs of a centre i and a context word j.

    `s` is the logistic function (Mikolov et al. 2013, eq. 4). Of `columns`, the first ``centres + 2 window`` are the
    block with a margin of `window` words on both sides, the others its negatives, over which the expectation is taken.
    A centre has `n_before` context words before it and `n_after` after it. A batch without a pair counts as one of
    loss 0.
    """
    weight, positive = _pair_weights(columns, n_before, n_after, window, negatives)
    total: Tensor = _LogisticLoss.apply(centres, columns, weight, positive)  # type: ignore[no-untyped-call]
    return Loss(total, total.detach(), (n_before + n_after).sum().clamp(min=1))


def _pair_weights(
    columns: Float[Tensor, "blocks columns D"],
    n_before: Int[Tensor, "blocks centres"],
    n_after: Int[Tensor, "blocks centres"],
    window: int,
    negatives: int,
) -> tuple[Float[Tensor, "blocks centres columns"], Float[Tensor, "blocks centres words"]]:
    """Return the weight of each pair in the loss, and that of positive pairs, which have columns of words alone."""
    n_centres = n_before.shape[1]
    n_words = n_centres + 2 * window
    words = torch.arange(n_words, device=n_before.device)
    distance = words - window - torch.arange(n_centres, device=n_before.device)[:, None]
    inside = (distance >= -n_before[..., None]) & (distance <= n_after[..., None]) & (distance != 0)
    positive = inside.to(columns.dtype)
    n_negatives = columns.shape[1] - n_words
    negative = (n_before + n_after).to(columns.dtype)[..., None] * (negatives / n_negatives)
    return torch.cat((positive, negative.expand(-1, -1, n_negatives)), -1), positive


class _LogisticLoss(torch.autograd.Function):
    """``sum(weight * softplus(score)) - sum(positive * score)``, which is the loss: log s(-x) = log s(x) - x.

    The gradient by a score is ``weight * s(score) - positive``; it is computed with the loss, while scores are cached.
    """

    @staticmethod
    def forward(ctx: Any, centres: Tensor, columns: Tensor, weight: Tensor, positive: Tensor) -> Tensor:
        scores = centres @ columns.mT  # (blocks, centres, columns)
        words = slice(0, positive.shape[-1])
        total = (weight * F.softplus(scores)).sum() - (positive * scores[..., words]).sum()
        if any(ctx.needs_input_grad[:2]):
            grad_scores = scores.sigmoid_().mul_(weight)
            grad_scores[..., words] -= positive
            ctx.save_for_backward(grad_scores @ columns, grad_scores.mT @ centres)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_centres, grad_columns = ctx.saved_tensors
        return grad_centres * gradients[0], grad_columns * gradients[0], None, None
