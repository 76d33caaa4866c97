"""Define every operation of dispatch.py in plain PyTorch: what kernels must equal, and what runs where none fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.kernels.int8_weight import EXACT_COLUMNS, INT8_MAX, Int8Weight, row_maximum, scale_columns
from regard.nn.mask import AttentionMask

ROWS_PER_CHUNK = 32
"""Rows of a vocabulary gone through at once: what is worked out of more would not stay in a CPU's cache."""


def packed_self_attention(qkv: Float[Tensor, "B T HEEE"], mask: AttentionMask, n_heads: int) -> Float[Tensor, "B T HE"]:
    """Return attention within each segment of packed rows, from q, k and v of all heads side by side.

    Queries with nothing to attend to get zeros.
    """
    q, k, v = (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in qkv.chunk(3, dim=-1))
    o = scaled_dot_product_attention(q, k, v, mask.mask)
    o = o if mask.fully_masked is None else o.masked_fill(mask.fully_masked, 0.0)
    return o.transpose(1, 2).flatten(2)


def scaled_dot_product_attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K Ev"],
    mask: Bool[Tensor, "_ _ _ K"] | Float[Tensor, "_ _ _ K"] | None,
) -> Float[Tensor, "B H Q Ev"]:
    """Return ``softmax(q k^T / sqrt(E)) v`` under a boolean mask, True = may attend, or one that is added to scores."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "out D"], bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias``."""
    return F.linear(x, weight, bias)


def int8_linear(
    x: Float[Tensor, "*B D"], weight: Int8Weight, bias: Float[Tensor, " out"] | None
) -> Float[Tensor, "*B out"]:
    """Return ``x @ weight.T + bias`` with the rows of x quantised: exact sums, by matrices of float32."""
    rows = scale_columns(x.reshape(-1, x.shape[-1]), weight)
    maximum = row_maximum(rows)
    quantized, values = (rows / maximum * INT8_MAX).round(), weight.unpacked_values()
    parts = zip(quantized.split(EXACT_COLUMNS, 1), values.split(EXACT_COLUMNS, 1), strict=True)
    total = torch.stack([(left @ right.to(x.dtype).T).nan_to_num().int() for left, right in parts]).sum(0)
    out = total * weight.step
    out = out * maximum if bias is None else torch.addcmul(bias, out, maximum)
    return out.view(*x.shape[:-1], weight.shape[0])


def gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``x P(X < x)`` for a standard normal X (Hendrycks & Gimpel 2016)."""
    return F.gelu(x)


def gelu_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return GPT-2's ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
    return F.gelu(x, approximate="tanh")


def cross_entropy(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float, n_classes: int, ignore_index: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the summed loss and the summed negative log-likelihood; the logits may be overwritten.

    Of the logits the first `n_classes` count; those behind them are zeros that fill up a tile.
    """
    softmax = _SmoothedCrossEntropy(logits, target, smoothing, n_classes, ignore_index)
    return softmax.loss, softmax.nll


def cross_entropy_with_gradient(
    logits: Float[Tensor, "N V"], target: Int[Tensor, " N"], smoothing: float, n_classes: int, ignore_index: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, "N V"]]:
    """Return what `cross_entropy` does and the gradient of the loss by the logits."""
    softmax = _SmoothedCrossEntropy(logits, target, smoothing, n_classes, ignore_index)
    return softmax.loss, softmax.nll, softmax.gradient()


class _SmoothedCrossEntropy:
    """The loss of rows of logits, which are overwritten, with one exponential for each number."""

    def __init__(self, logits: Tensor, target: Tensor, smoothing: float, n_classes: int, ignore_index: int) -> None:
        self.target, self.smoothing, self.n_classes = target, smoothing, n_classes
        x = logits.to(torch.promote_types(logits.dtype, torch.float32))
        counted = (target != ignore_index)[:, None]
        x_label = x.gather(1, target.clamp(min=0).long()[:, None])
        mean = x.sum(1, keepdim=True) / n_classes if smoothing else 0.0
        if x.shape[1] > n_classes:
            x[:, n_classes:] = -torch.inf
        m = x.amax(1, keepdim=True)
        self.exp = x.sub_(m).exp_()
        self.sum = self.exp.sum(1, keepdim=True)
        lse = self.sum.log() + m
        nll = lse - x_label
        loss = (1 - smoothing) * nll + smoothing * (lse - mean)
        self.counted = counted.to(x.dtype)
        self.loss, self.nll = (loss * self.counted).sum(), (nll * self.counted).sum()

    def gradient(self) -> Tensor:
        """Return ``softmax - (1 - e) onehot - e / V`` at each counted position; the exponentials are overwritten."""
        softmax = self.exp.mul_(self.counted / self.sum).sub_(self.counted * (self.smoothing / self.n_classes))
        if softmax.device.type == "cpu":
            target, less = self.target.clamp(min=0).long()[:, None], self.counted * (self.smoothing - 1)
            return softmax.scatter_add_(1, target, less)
        classes = torch.arange(softmax.shape[1], device=self.target.device, dtype=self.target.dtype)
        onehot = classes == self.target[:, None]
        return softmax.add_(onehot, alpha=self.smoothing - 1)  # a compiler makes one pass of all this


def attention_jvp(
    dq: Float[Tensor, "Q N HE"],
    dk: Float[Tensor, "K N HE"] | None,
    dv: Float[Tensor, "K N HE2"] | None,
    q: Float[Tensor, "H Q E"],
    k: Float[Tensor, "H K E"],
    v: Float[Tensor, "H K E2"],
    p: Float[Tensor, "H Q K"],
    o: Float[Tensor, "H Q E2"],
) -> Float[Tensor, "Q N HE2"]:
    """Return how o of attention moves with q, k and v, for N directions: ``do = (p ds) v - (sum_k p ds) o + p dv``.

    That is the derivative of a softmax without its Jacobian matrix. dk and dv that are None are zero.
    """
    p_ds = weighted_score_jvp(dq, dk, q, k, p)
    do: Tensor = output_jvp(p_ds, dv, v, p, o).permute(1, 2, 0, 3)
    return do.flatten(2)


def weighted_score_jvp(
    dq: Float[Tensor, "Q N HE"],
    dk: Float[Tensor, "K N HE"] | None,
    q: Float[Tensor, "H Q E"],
    k: Float[Tensor, "H K E"],
    p: Float[Tensor, "H Q K"],
    added: Float[Tensor, "H Q N K"] | None = None,
) -> Float[Tensor, "H Q N K"]:
    """Return ``p ds`` with ``ds = (dq k^T + q dk^T + added) / sqrt(E)``."""
    ds: Tensor = (by_head(dq, len(q)).flatten(1, 2) @ k.mT).unflatten(1, dq.shape[:2])
    if dk is not None:
        back = by_head(dk, len(q)).flatten(1, 2) @ q.mT
        ds += back.unflatten(1, dk.shape[:2]).transpose(1, 3)
    if added is not None:
        ds += added
    ds *= p[:, :, None] / math.sqrt(q.shape[-1])
    return ds


def output_jvp(
    p_ds: Float[Tensor, "H Q N K"],
    dv: Float[Tensor, "K N HE2"] | None,
    v: Float[Tensor, "H K E2"],
    p: Float[Tensor, "H Q K"],
    o: Float[Tensor, "H Q E2"],
) -> Float[Tensor, "H Q N E2"]:
    """Return ``(p ds) v - (sum_k p ds) o + p dv``."""
    do: Tensor = (p_ds.flatten(1, 2) @ v).unflatten(1, p_ds.shape[1:3])
    do.addcmul_(p_ds.sum(-1, keepdim=True), o[:, :, None], value=-1)
    if dv is not None:
        do += (p @ by_head(dv, len(p)).flatten(2)).view_as(do)
    return do


def by_head(x: Float[Tensor, "T N HE"], n_heads: int) -> Float[Tensor, "H T N E"]:
    """Return the heads, which lie side by side, as a leading dimension."""
    heads: Tensor = x.unflatten(-1, (n_heads, -1))
    return heads.permute(2, 0, 1, 3)


def top_log_probs(
    logits: Float[Tensor, "N V"], n: int, eos_id: int, suppressed: Int[Tensor, " M"]
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
    """Return the log-probabilities of each row's `n` most likely tokens, those tokens, and that of ``<eos>``.

    Suppressed tokens are never among them, as long as there are others.
    """
    rows_per_chunk = ROWS_PER_CHUNK if logits.device.type == "cpu" else max(len(logits), 1)
    parts = [_top_log_probs(rows, n, eos_id, suppressed) for rows in logits.split(rows_per_chunk)]
    if len(parts) == 1:
        return parts[0]
    score, token, end = (torch.cat(part) for part in zip(*parts, strict=True))
    return score, token, end


def _top_log_probs(logits: Tensor, n: int, eos_id: int, suppressed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = logits.float().log_softmax(-1)
    if len(suppressed):
        log_probs.index_fill_(1, suppressed, -torch.inf)
    n = min(n, log_probs.shape[1])
    score, token = log_probs.max(-1, keepdim=True) if n == 1 else log_probs.topk(n)
    return score, token, log_probs[:, eos_id]


def append_key_values(
    key_cache: Float[Tensor, "B H K E"],
    value_cache: Float[Tensor, "B H K Ev"],
    key: Float[Tensor, "B H W E"],
    value: Float[Tensor, "B H W Ev"],
    columns: Int[Tensor, "B W"],
) -> None:
    """Write W tokens of each row to its columns of the cache."""
    rows = torch.arange(len(columns), device=columns.device)[:, None]
    for cache, new in ((key_cache, key), (value_cache, value)):
        cache.transpose(1, 2)[rows, columns] = new.transpose(1, 2).to(cache.dtype)


def decoder_layers(
    layers: Iterable[Any],
    x: Float[Tensor, "B T D"],
    cross_kv: Sequence[Any],
    attention_mask: AttentionMask,
    cross_attention_mask: AttentionMask,
    caches: Sequence[Any],
) -> Float[Tensor, "B T D"]:
    """Return the output of a stack of decoder layers for the next tokens, which are appended to the caches."""
    for layer, kv, cache in zip(layers, cross_kv, caches, strict=True):
        x = layer(x, kv.contents(), attention_mask, cross_attention_mask, cache)
    return x
