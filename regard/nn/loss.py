"""Cross-entropy with label smoothing, as sums with a count: averages are exact over any split of the batch.

`cross_entropy` takes logits. `linear_cross_entropy` takes hidden states and the output embedding and computes logits,
loss and gradient chunk by chunk, so the logits of a whole batch, by far the largest tensor of a training step, are
never materialised. Both give the same loss and gradient; those of a chunk come from kernels/cross_entropy.py on a GPU
and from kernels/plain.py elsewhere.
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
"""Logits per chunk (up to 1.5 times as many): what fits in a CPU's cache, or fully utilises a GPU."""

PAD_TO_MULTIPLE_OF = {"cuda": 64}
"""Pad the vocabulary to a multiple of this: GPUs work in tiles and are slower at odd sizes such as GPT-2's 50,257."""


class Loss(NamedTuple):
    """The training loss summed over tokens, the plain negative log-likelihood, and the number of tokens."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    n_tokens: Int[Tensor, ""]


def cross_entropy(logits: Float[Tensor, "*B V"], target: Int[Tensor, "*B"], label_smoothing: float = 0.0) -> Loss:
    """Return ``-(1 - e) log p(target) - e mean_v log p(v)``, summed over the targets that are not IGNORE."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    mask = target != IGNORE
    lse = wide.logsumexp(-1)
    nll = lse - wide.gather(-1, target.clamp(min=0).long()[..., None]).squeeze(-1)
    total = (1 - label_smoothing) * nll + label_smoothing * (lse - wide.mean(-1))
    return Loss(torch.where(mask, total, 0.0).sum(), torch.where(mask, nll, 0.0).sum().detach(), mask.sum())


def linear_cross_entropy(
    hidden: Float[Tensor, "*B D"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, "*B"],
    label_smoothing: float = 0.0,
    bias: Float[Tensor, " V"] | None = None,
) -> Loss:
    """Return the `cross_entropy` of the logits ``hidden @ weight.T + bias``."""
    flat = hidden.flatten(0, -2), weight, bias, target.flatten()
    total, nll = _LinearCrossEntropy.apply(*flat, label_smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (target != IGNORE).sum())


def squared_error(predicted: Float[Tensor, "*B"], target: Float[Tensor, "*B"]) -> Loss:
    """Return ``(predicted - target)^2``, summed over the targets that are not NaN."""
    mask = ~target.isnan()
    total = torch.where(mask, predicted - target.nan_to_num(), 0.0).square().sum()
    return Loss(total, total.detach(), mask.sum())


def symmetric_kl_divergence(
    logits: Float[Tensor, "B T V"], other_logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Tensor:
    """Return the mean of the two KL divergences, summed over tokens: R-Drop's regulariser (Liang et al. 2021)."""
    p, q = logits.float().log_softmax(-1), other_logits.float().log_softmax(-1)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    return torch.where(target != IGNORE, divergence, 0.0).sum()


class _LinearCrossEntropy(torch.autograd.Function):
    """Chunked loss: the forward pass saves the gradients for a loss weight of 1; the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        float_dtype = torch.promote_types(hidden.dtype, torch.float32)
        total, nll = torch.zeros(2, dtype=float_dtype, device=hidden.device)
        needs_gradient = any(ctx.needs_input_grad[:3])
        device, vocabulary_size = hidden.device.type, len(weight)
        multiple = PAD_TO_MULTIPLE_OF.get(device, 1)
        chunk_size = _chunk_size(len(hidden), vocabulary_size, device, multiple)
        weight, bias = _pad_to_multiple(weight, multiple), None if bias is None else _pad_to_multiple(bias, multiple)
        grad_hidden, grad_weight = [], torch.zeros_like(weight, dtype=float_dtype) if needs_gradient else weight
        grad_bias = torch.zeros(len(weight), dtype=float_dtype, device=weight.device)
        for chunk, labels in zip(hidden.split(chunk_size), target.split(chunk_size), strict=True):
            logits = chunk @ weight.T if bias is None else torch.addmm(bias, chunk, weight.T)
            arguments = logits, labels, label_smoothing, vocabulary_size, IGNORE
            if not needs_gradient:
                chunk_total, chunk_nll = plain.cross_entropy(*arguments)
            else:
                chunk_total, chunk_nll, grad_logits = dispatch.cross_entropy_with_gradient(*arguments)
                if bias is not None:
                    grad_bias = grad_bias + grad_logits.sum(0, dtype=float_dtype)
                grad_logits = grad_logits.to(hidden.dtype)
                grad_hidden.append(grad_logits @ weight)
                _accumulate_matmul(grad_weight, grad_logits.T, chunk)
            total, nll = total + chunk_total, nll + chunk_nll
        if needs_gradient:
            ctx.save_for_backward(torch.cat(grad_hidden), grad_weight[:vocabulary_size], grad_bias[:vocabulary_size])
            ctx.has_bias = bias is not None
        ctx.dtype = hidden.dtype
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        grad_hidden, grad_weight, grad_bias = ((grad * gradients[0]).to(ctx.dtype) for grad in ctx.saved_tensors)
        return grad_hidden, grad_weight, grad_bias if ctx.has_bias else None, None, None


def _chunk_size(n_rows: int, vocabulary_size: int, device: str, multiple: int) -> int:
    """Return the rows per chunk; chunks are of equal size because a small last one would use a GPU badly."""
    n_chunks = max(1, round(n_rows * vocabulary_size / LOGITS_PER_CHUNK.get(device, 1 << 24)))
    return max(1, math.ceil(n_rows / (n_chunks * multiple))) * multiple


def _pad_to_multiple(tensor: Tensor, multiple: int) -> Tensor:
    """Append zero rows up to a multiple."""
    n_padding = -len(tensor) % multiple
    return torch.cat((tensor, tensor.new_zeros(n_padding, *tensor.shape[1:]))) if n_padding else tensor


def _accumulate_matmul(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Compute ``total += left @ right``, in one pass if all have one dtype."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
