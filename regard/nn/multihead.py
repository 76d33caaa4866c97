"""Multi-head attention (Vaswani et al. 2017, section 3.2.2): self-attention, causal or not, and cross-attention.

Attention runs fused (nn/kernels/dispatch.py chooses the kernel) unless a tap of scores or weights is active or the
position scheme needs the weights; then they are computed explicitly. Both paths give the same numbers. There is no
dropout on the weights, so the weights recorded are those that were trained (docs/LOG.md).
"""

from __future__ import annotations

import math
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.attention import InspectableAttention
from regard.nn.kernels import dispatch
from regard.nn.kv_cache import KeyValue, KVCacheLike
from regard.nn.linear_layers import Linear
from regard.nn.mask import AttentionMask
from regard.nn.positions import NoPositions, Positions
from regard.nn.tap import any_active


class MultiHeadAttention(InspectableAttention):
    """``[head_1 ; ... ; head_H] W_O`` with ``head_i = softmax(Q_i K_i^T / sqrt(d_k)) V_i``.

    `projection` stacks ``W_Q``, ``W_K`` and ``W_V`` of all heads, so self-attention needs one matrix multiplication;
    `d_key` and `d_value` are the widths per head and need not be ``d_model / n_heads``.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        positions: Positions | None = None,
    ) -> None:
        assert (d_key and d_value) or d_model % n_heads == 0, (
            f"d_model {d_model} is not a multiple of n_heads {n_heads}"
        )
        super().__init__(n_heads, d_value or d_model // n_heads)
        self.d_key = d_key or d_model // n_heads
        self.qkv_widths = [n_heads * self.d_key, n_heads * self.d_key, n_heads * self.d_value]
        self.projection = Linear(d_model, sum(self.qkv_widths))
        self.output = Linear(n_heads * self.d_value, d_model)
        self.positions = positions or NoPositions()

    def bilinear_factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]]:
        query, key, _ = self.projection.weight.detach().split(self.qkv_widths)
        w_q, w_k = (stacked.unflatten(0, (self.n_heads, self.d_key))[head] for stacked in (query, key))
        return w_q, w_k

    def forward(
        self, x: Float[Tensor, "B T D"], attention_mask: AttentionMask, cache: KVCacheLike | None = None
    ) -> Float[Tensor, "B T D"]:
        """Apply self-attention; with a cache, tokens also attend to those cached before."""
        projected = self.projection(x).contiguous()
        inputs = projected, attention_mask, self.n_heads
        is_packed = cache is None and attention_mask.layout is not None and self._is_plain()
        if is_packed and (not attention_mask.lengths or dispatch.has_kernel("packed_self_attention", *inputs)):
            return self._project_output(dispatch.packed_self_attention(*inputs))
        query, key, value = projected.split(self.qkv_widths, dim=-1)
        kv = self._make_kv(key, value, attention_mask.query_position)
        return self.attend(query, kv if cache is None else cache.append(kv), attention_mask)

    def project_kv(self, encoded: Float[Tensor, "B K D"], position: Int[Tensor, "B K"]) -> KeyValue:
        """Return the cross-attention keys and values of encoded texts, computed once for any number of queries."""
        start = self.qkv_widths[0]
        projected = self.projection.forward_outputs(encoded, start, sum(self.qkv_widths))
        key, value = projected.contiguous().split(self.qkv_widths[1:], dim=-1)
        return self._make_kv(key, value, position)

    def cross_attend(
        self, x: Float[Tensor, "B Q D"], kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "B Q D"]:
        """Apply cross-attention to the keys and values of `project_kv`."""
        query = self.projection.forward_outputs(x, 0, self.qkv_widths[0]).contiguous()
        return self.attend(query, kv, attention_mask)

    def attend(
        self, query: Float[Tensor, "B Q HE"], kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "B Q D"]:
        """Attend with projected queries in every head, and apply the output projection."""
        rotated = self.positions.rotate(self._split_heads(query, self.d_key), attention_mask.query_position)
        by_head: Tensor = self.query(rotated)
        attend = self._attend_by_sentence if attention_mask.lengths else self._attend_heads
        return self._project_output(attend(by_head, kv, attention_mask))

    def _project_output(self, heads: Float[Tensor, "B Q HE"]) -> Float[Tensor, "B Q D"]:
        projected: Tensor = self.output(self.mixed(heads))
        return projected

    def _is_plain(self) -> bool:
        """Return True if no tap is active and positions do not act here, so that q, k and v need not be split."""
        active = self.are_active or any_active(self.query, self.key, self.value)
        return not active and not self.positions.acts_in_attention and self.d_key == self.d_value

    def _attend_heads(self, query: Tensor, kv: KeyValue, attention_mask: AttentionMask) -> Float[Tensor, "B Q HE"]:
        explicit = self.are_active or self.positions.needs_weights
        attend = self._explicit_attention if explicit else self._fused_attention
        return attend(query, kv, attention_mask).transpose(1, 2).flatten(2)

    def _attend_by_sentence(
        self, query: Tensor, kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "1 Q HE"]:
        """Attend within each sentence of one row, batching adjacent sentences of equal length."""
        outputs, start = [], 0
        for length, group in groupby(attention_mask.lengths):
            end = start + length * len(list(group))
            q, k, v = (
                tensor[0, :, start:end].unflatten(1, (-1, length)).transpose(0, 1) for tensor in (query, *kv)
            )  # (sentences, H, length, E)
            position = attention_mask.query_position[0, start:end].unflatten(0, (-1, length))
            outputs.append(self._attend_heads(q, KeyValue(k, v), AttentionMask(position, position)).flatten(0, 1))
            start = end
        return torch.cat(outputs)[None]

    def _make_kv(self, key: Tensor, value: Tensor, position: Tensor) -> KeyValue:
        rotated = self.positions.rotate(self._split_heads(key, self.d_key), position)
        return KeyValue(self.key(rotated), self.value(self._split_heads(value, self.d_value)))

    def _split_heads(self, x: Float[Tensor, "B T HE"], width: int) -> Float[Tensor, "B H T E"]:
        by_head: Tensor = x.unflatten(-1, (self.n_heads, width))
        return by_head.transpose(1, 2)

    def _fused_attention(self, query: Tensor, kv: KeyValue, attention_mask: AttentionMask) -> Float[Tensor, "B H Q E"]:
        mask = attention_mask.mask
        bias = self.positions.score_bias(query, attention_mask)
        if bias is not None:
            bias = bias / math.sqrt(self.d_key)
            mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
        out = dispatch.scaled_dot_product_attention(query, kv.key, kv.value, mask)
        return out if attention_mask.fully_masked is None else out.masked_fill(attention_mask.fully_masked, 0.0)

    def _explicit_attention(
        self, query: Tensor, kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "B H Q E"]:
        scores = query @ kv.key.mT  # (B, H, Q, K)
        score_bias = self.positions.score_bias(query, attention_mask)
        scores = (scores if score_bias is None else scores + score_bias) / math.sqrt(self.d_key)
        weights = self.softmax(scores, attention_mask)
        out = weights @ kv.value
        value_bias = self.positions.value_bias(weights, attention_mask)
        return out if value_bias is None else out + value_bias
