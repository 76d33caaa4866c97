"""Cross-entropy with label smoothing, as sums with a count: averages are exact over any split of the batch.

`cross_entropy` takes logits. `linear_cross_entropy` takes what they are made of and goes through the tokens in
chunks, working out the gradient on the way, so the logits of a whole batch, by far the largest tensor of a training
step, never exist. Both give the same loss and gradient.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels import dispatch, plain

IGNORE = -100
"""The target id of a position without a prediction: PyTorch's default `ignore_index`."""

LOGITS_PER_CHUNK = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Logits made at once, half as many again at most: what stays in a CPU's cache, or keeps a GPU busy."""

PAD_TO_MULTIPLE_OF = {"cuda": 64}
"""What vocabularies are filled up to a multiple of: a GPU works in tiles, and takes longer for GPT-2's 50,257 words."""


class Loss(NamedTuple):
    """What is minimised, summed over tokens; beside it the plain negative log-likelihood and the tokens."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    n_tokens: Int[Tensor, ""]


def cross_entropy(logits: Float[Tensor, "*B V"], target: Int[Tensor, "*B"], label_smoothing: float = 0.0) -> Loss:
    """``-(1 - e) log p(target) - e mean_v log p(v)``, summed over the targets that are not IGNORE."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    counts = target != IGNORE
    normaliser = wide.logsumexp(-1)
    nll = normaliser - wide.gather(-1, target.clamp(min=0).long()[..., None]).squeeze(-1)
    total = (1 - label_smoothing) * nll + label_smoothing * (normaliser - wide.mean(-1))
    return Loss(torch.where(counts, total, 0.0).sum(), torch.where(counts, nll, 0.0).sum().detach(), counts.sum())


def linear_cross_entropy(
    hidden: Float[Tensor, "*B D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, "*B"],
    label_smoothing: float = 0.0,
    bias: Float[Tensor, " V"] | None = None,
) -> Loss:
    """`cross_entropy` of the logits ``hidden @ weight.T + bias``."""
    flat = hidden.flatten(0, -2), weight, bias, target.flatten()
    total, nll = _LinearCrossEntropy.apply(*flat, label_smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (target != IGNORE).sum())


def symmetric_kl_divergence(
    logits: Float[Tensor, "B T V"], other_logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Tensor:
    """R-Drop's term: the mean of the two Kullback-Leibler divergences, summed over tokens (Liang et al. 2021)."""
    p, q = logits.float().log_softmax(-1), other_logits.float().log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    return torch.where(target != IGNORE, both, 0.0).sum()


class _LinearCrossEntropy(torch.autograd.Function):
    """The forward pass keeps the gradients of a loss of weight 1; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        total, nll = torch.zeros(2, dtype=exact, device=hidden.device)
        learning = any(ctx.needs_input_grad[:3])
        device, size = hidden.device.type, len(weight)
        even = PAD_TO_MULTIPLE_OF.get(device, 1)
        n_chunks = max(
            1, round(len(hidden) * size / LOGITS_PER_CHUNK.get(device, 1 << 24))
        )  # alike: a rest fills a GPU badly
        rows = max(1, math.ceil(len(hidden) / (n_chunks * even))) * even
        weight, bias = _pad_to_multiple(weight, even), None if bias is None else _pad_to_multiple(bias, even)
        of_hidden, of_weight = [], torch.zeros_like(weight, dtype=exact) if learning else weight
        of_bias = torch.zeros(len(weight), dtype=exact, device=weight.device)
        for part, wanted in zip(hidden.split(rows), target.split(rows), strict=True):
            logits = part @ weight.T if bias is None else torch.addmm(bias, part, weight.T)
            given = logits, wanted, label_smoothing, size, IGNORE
            if not learning:
                of_part, of_likelihood = plain.cross_entropy(*given)
            else:
                of_part, of_likelihood, gradient = dispatch.cross_entropy_with_gradient(*given)
                if bias is not None:
                    of_bias = of_bias + gradient.sum(0, dtype=exact)
                gradient = gradient.to(hidden.dtype)
                of_hidden.append(gradient @ weight)
                _accumulate_matmul(of_weight, gradient.T, part)
            total, nll = total + of_part, nll + of_likelihood
        if learning:
            ctx.save_for_backward(torch.cat(of_hidden), of_weight[:size], of_bias[:size])
            ctx.biased = bias is not None
        ctx.narrow = hidden.dtype
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        of_hidden, of_weight, of_bias = ((each * gradients[0]).to(ctx.narrow) for each in ctx.saved_tensors)
        return of_hidden, of_weight, of_bias if ctx.biased else None, None, None


def _pad_to_multiple(tensor: Tensor, multiple: int) -> Tensor:
    """With zeros behind it, up to a multiple."""
    more = -len(tensor) % multiple
    return torch.cat((tensor, tensor.new_zeros(more, *tensor.shape[1:]))) if more else tensor


def _accumulate_matmul(total: Tensor, left: Tensor, right: Tensor) -> None:
    """``total += left @ right``, in one pass where the product needs no widening."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
