"""Attention with one weight per query and key: the scores of SPEC 1.1-1.4 and pooling by learned queries (1.5).

These are the mechanisms before multi-head attention (Bahdanau, Luong, Lin); recurrent systems and classifiers use
them. A score is a subclass with one method; weights always flow through the tap ``weights``.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.sight import Sight
from regard.nn.tap import Tap


def softmax_visible(scores: Float[Tensor, "*B Q K"], sight: Sight | None) -> Float[Tensor, "*B Q K"]:
    """Weights over the keys each query may see; zeros where it may see none."""
    if sight is None or sight.allowed is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~sight.allowed, -math.inf).softmax(-1)
    return weights if sight.blank is None else weights.masked_fill(sight.blank, 0.0)


class Attention(nn.Module):
    """``out = sum_i a_i v_i`` with ``a = softmax_i(score(q, k_i))``; subclasses say what the score is."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = Tap()

    def score(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B Q Dq"],
        key: Float[Tensor, "B K Dk"],
        value: Float[Tensor, "B K Dv"],
        sight: Sight | None = None,
    ) -> Float[Tensor, "B Q Dv"]:
        scores = self.score(query, key).unsqueeze(1)  # (B, 1, Q, K), as a sight is shaped
        weights: Tensor = self.weights(softmax_visible(scores, sight).squeeze(1))
        return weights @ value


class AdditiveAttention(Attention):
    """``v_a . tanh(W_a [k ; q])`` (Bahdanau et al. 2015); query and key may differ in width."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.d_key = d_key
        self.hidden = nn.Linear(d_key + d_query, d_hidden, bias=False)
        self.energy = nn.Linear(d_hidden, 1, bias=False)

    def score(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        of_key, of_query = self.hidden.weight.split([self.d_key, query.shape[-1]], dim=1)
        hidden = (query @ of_query.T)[:, :, None] + (key @ of_key.T)[:, None]  # (B, Q, K, d_hidden)
        energy: Tensor = self.energy(torch.tanh(hidden))
        return energy.squeeze(-1)


class DotAttention(Attention):
    """``k . q``, without parameters (Luong et al. 2015)."""

    def score(self, query: Float[Tensor, "B Q D"], key: Float[Tensor, "B K D"]) -> Float[Tensor, "B Q K"]:
        return query @ key.mT


class ScaledDotAttention(DotAttention):
    """``k . q / sqrt(d_k)`` (Vaswani et al. 2017, eq. 1)."""

    def score(self, query: Float[Tensor, "B Q D"], key: Float[Tensor, "B K D"]) -> Float[Tensor, "B Q K"]:
        return super().score(query, key) / math.sqrt(key.shape[-1])


class BilinearAttention(Attention):
    """``q^T M k`` (Luong's "general"); a head of multi-head attention is this with M = W_Q W_K^T."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.form = nn.Linear(d_key, d_query, bias=False)

    def score(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        form: Tensor = self.form(key)
        return query @ form.mT


class AttentionPooling(nn.Module):
    """One vector per hop from a whole text: ``softmax(K q / sqrt(d))^T V`` with trained or fixed queries.

    Several hops are Lin et al. 2017; `redundancy` of the weights is their optional penalty.
    """

    def __init__(self, d_key: int, *, n_hops: int = 1, learned: bool = True) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.ones(n_hops, d_key), requires_grad=learned)
        if learned:
            nn.init.normal_(self.query)
        self.weights = Tap()

    def weigh(self, key: Float[Tensor, "B T D"], there: Bool[Tensor, "B T"]) -> Float[Tensor, "B hops T"]:
        """The weights of each hop over the tokens that are there; zeros for a text without tokens."""
        scores = self.query @ key.mT / math.sqrt(key.shape[-1])  # (B, hops, T)
        blank = ~there.any(-1)[:, None, None]
        scores = scores.masked_fill(~(there[:, None] | blank), -math.inf)
        weights: Tensor = self.weights(scores.softmax(-1).masked_fill(blank, 0.0))
        return weights

    def forward(
        self, key: Float[Tensor, "B T D"], value: Float[Tensor, "B T Dv"], there: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B hops Dv"]:
        return self.weigh(key, there) @ value


def redundancy(weights: Float[Tensor, "B hops T"]) -> Float[Tensor, " B"]:
    """Lin et al.'s penalty ``||A A^T - I||_F^2``: how much the hops look at the same tokens."""
    gram = weights @ weights.mT
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - identity).square().sum((-2, -1))
