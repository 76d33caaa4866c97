"""Multi-head attention (SPEC 1.6-1.10): self, masked and cross, fused or explicit.

Attention runs fused (nn/kernels/dispatch.py chooses the kernel) unless somebody listens to the tap ``weights`` or the
position scheme works on the weights; then they are computed as written in the paper. All give the same numbers. There
is no dropout on the weights, so that what is looked at is what was trained (docs/LOG.md).
"""

from __future__ import annotations

import math
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.attention import HeadedAttention, softmax_visible
from regard.nn.cache import KeyValue, Memory
from regard.nn.kernels import dispatch
from regard.nn.linear import Linear
from regard.nn.positions import NoPositions, Positions
from regard.nn.sight import Sight


class MultiHeadAttention(HeadedAttention):
    """H heads over the same tokens; ``[Z_1 ; ... ; Z_H] W_O`` has the shape of the input.

    One matrix holds ``W_Q``, ``W_K`` and ``W_V`` of all heads one below the other, so self-attention needs one
    product; `d_key` and `d_value` are the widths per head and need not be ``d_model / n_heads``.
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
        self.widths = [n_heads * self.d_key, n_heads * self.d_key, n_heads * self.d_value]
        self.projection = Linear(d_model, sum(self.widths))
        self.output = Linear(n_heads * self.d_value, d_model)
        self.positions = positions or NoPositions()

    def factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]]:
        query, key, _ = self.projection.weight.detach().split(self.widths)
        of_query, of_key = (part.unflatten(0, (self.n_heads, self.d_key))[head] for part in (query, key))
        return of_query, of_key

    def forward(self, x: Float[Tensor, "B T D"], sight: Sight, cache: Memory | None = None) -> Float[Tensor, "B T D"]:
        """Self-attention: every token looks at the tokens of the same rows, and at those remembered."""
        projected = self.projection(x).contiguous()
        if cache is None and sight.within is not None and self._is_plain():
            return self._out(dispatch.packed_self_attention(projected, sight, self.n_heads))
        query, key, value = projected.split(self.widths, dim=-1)
        memory = self._memory(key, value, sight.query_position)
        return self.attend(query, memory if cache is None else cache.append(memory), sight)

    def remember(self, memory: Float[Tensor, "B K D"], position: Int[Tensor, "B K"]) -> KeyValue:
        """The keys and values of a text, for cross-attention to look at any number of times."""
        first = self.widths[0]
        weight, bias = self.projection.weight[first:], self.projection.bias[first:]
        key, value = dispatch.linear(memory, weight, bias).contiguous().split(self.widths[1:], dim=-1)
        return self._memory(key, value, position)

    def cross(self, x: Float[Tensor, "B Q D"], memory: KeyValue, sight: Sight) -> Float[Tensor, "B Q D"]:
        """Cross-attention: every token looks at the remembered text."""
        first = self.widths[0]
        query = dispatch.linear(x, self.projection.weight[:first], self.projection.bias[:first]).contiguous()
        return self.attend(query, memory, sight)

    def attend(self, query: Float[Tensor, "B Q HE"], memory: KeyValue, sight: Sight) -> Float[Tensor, "B Q D"]:
        """``softmax(Q K^T / sqrt(d_k)) V`` in every head, through the output projection."""
        turned = self.positions.turn(self._heads(query, self.d_key), sight.query_position)
        by_head: Tensor = self.query(turned)
        mix = self._apart if sight.lengths else self._mix
        return self._out(mix(by_head, memory, sight))

    def _out(self, mixed: Float[Tensor, "B Q HE"]) -> Float[Tensor, "B Q D"]:
        projected: Tensor = self.output(self.mixed(mixed))
        return projected

    def _is_plain(self) -> bool:
        """Nobody listens and positions do nothing here, so that q, k and v need not be taken apart."""
        heard = any(tap.heard for tap in (self.query, self.key, self.value, self.weights))
        return not heard and not self.positions.acts_in_attention and self.d_key == self.d_value

    def _mix(self, query: Tensor, memory: KeyValue, sight: Sight) -> Float[Tensor, "B Q HE"]:
        explicit = self.weights.heard or self.positions.needs_weights
        out = self._explicit(query, memory, sight) if explicit else self._fused(query, memory, sight)
        return out.transpose(1, 2).flatten(2)

    def _apart(self, query: Tensor, memory: KeyValue, sight: Sight) -> Float[Tensor, "1 Q HE"]:
        """Each sentence by itself, neighbours of one length together."""
        mixed, start = [], 0
        for length, same in groupby(sight.lengths):
            end = start + length * len(list(same))
            own_query, key, value = (
                part[0, :, start:end].unflatten(1, (-1, length)).transpose(0, 1) for part in (query, *memory)
            )
            position = sight.query_position[0, start:end].unflatten(0, (-1, length))
            mixed.append(self._mix(own_query, KeyValue(key, value), Sight(position, position)).flatten(0, 1))
            start = end
        return torch.cat(mixed)[None]

    def _memory(self, key: Tensor, value: Tensor, position: Tensor) -> KeyValue:
        turned = self.positions.turn(self._heads(key, self.d_key), position)
        return KeyValue(self.key(turned), self.value(self._heads(value, self.d_value)))

    def _heads(self, x: Float[Tensor, "B T HE"], width: int) -> Float[Tensor, "B H T E"]:
        by_head: Tensor = x.unflatten(-1, (self.n_heads, width))
        return by_head.transpose(1, 2)

    def _fused(self, query: Tensor, memory: KeyValue, sight: Sight) -> Float[Tensor, "B H Q E"]:
        mask = sight.allowed
        added = self.positions.score(query, sight)
        if added is not None:
            added = added / math.sqrt(self.d_key)
            mask = added if mask is None else added.masked_fill(~mask, -math.inf)
        out = dispatch.scaled_dot_product_attention(query, memory.key, memory.value, mask)
        return out if sight.blank is None else out.masked_fill(sight.blank, 0.0)

    def _explicit(self, query: Tensor, memory: KeyValue, sight: Sight) -> Float[Tensor, "B H Q E"]:
        scores = query @ memory.key.mT  # (B, H, Q, K)
        added = self.positions.score(query, sight)
        scores = (scores if added is None else scores + added) / math.sqrt(self.d_key)
        weights: Tensor = self.weights(softmax_visible(scores, sight))
        out = weights @ memory.value
        more = self.positions.value(weights, sight)
        return out if more is None else out + more
