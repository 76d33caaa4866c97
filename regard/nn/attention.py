"""Attention with one weight per query and key: the scores of SPEC 1.1-1.4 and pooling by learned queries (1.5).

These are the mechanisms before multi-head attention (Bahdanau, Luong, Lin); recurrent systems and classifiers use
them. A score is a subclass with two methods; weights always flow through the tap ``weights``. `StateAttention` is how
a recurrent decoder looks at its source; what it shares with multi-head attention, and `look` needs, is
`HeadedAttention`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.kv_cache import KeyValue
from regard.nn.linear_layers import Linear
from regard.nn.mask import AttentionMask
from regard.nn.positions import NoPositions, Positions
from regard.nn.tap import Tap


def masked_softmax(scores: Float[Tensor, "*B Q K"], attention_mask: AttentionMask | None) -> Float[Tensor, "*B Q K"]:
    """Weights over the keys each query may see; zeros where it may see none."""
    if attention_mask is None or attention_mask.mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~attention_mask.mask, -math.inf).softmax(-1)
    return weights if attention_mask.fully_masked is None else weights.masked_fill(attention_mask.fully_masked, 0.0)


class Attention(nn.Module):
    """``out = sum_i a_i v_i`` with ``a = softmax_i(score(q, k_i))``; subclasses say what the score is.

    What of it depends on a key alone is `prepare`, done once however many queries come; `compare` is the rest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights = Tap()

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        return key

    def score_projected(
        self, query: Float[Tensor, "B Q Dq"], projected_key: Float[Tensor, "B K Dp"]
    ) -> Float[Tensor, "B Q K"]:
        raise NotImplementedError

    def score(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        return self.score_projected(query, self.project_key(key))

    def bilinear_factors(self) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        """``F`` and ``G`` if the score is ``(F q) . (G k)``; None if it is no bilinear form."""
        return None

    def forward(
        self,
        query: Float[Tensor, "B Q Dq"],
        key: Float[Tensor, "B K Dk"],
        value: Float[Tensor, "B K Dv"],
        attention_mask: AttentionMask | None = None,
    ) -> Float[Tensor, "B Q Dv"]:
        scores = self.score(query, key).unsqueeze(1)  # (B, 1, Q, K), as a sight is shaped
        weights: Tensor = self.weights(masked_softmax(scores, attention_mask).squeeze(1))
        return weights @ value


class AdditiveAttention(Attention):
    """``v_a . tanh(W_a [k ; q])`` (Bahdanau et al. 2015); query and key may differ in width."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.d_key = d_key
        self.hidden = nn.Linear(d_key + d_query, d_hidden, bias=False)
        self.energy = nn.Linear(d_hidden, 1, bias=False)

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        return key @ self.hidden.weight[:, : self.d_key].T

    def score_projected(
        self, query: Float[Tensor, "B Q Dq"], projected_key: Float[Tensor, "B K Dp"]
    ) -> Float[Tensor, "B Q K"]:
        of_query = query @ self.hidden.weight[:, self.d_key :].T
        energy: Tensor = self.energy(torch.tanh(of_query[:, :, None] + projected_key[:, None]))  # (B, Q, K, 1)
        return energy.squeeze(-1)


class DotAttention(Attention):
    """``k . q``, without parameters (Luong et al. 2015)."""

    def score_projected(
        self, query: Float[Tensor, "B Q D"], projected_key: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B Q K"]:
        return query @ projected_key.mT


class ScaledDotAttention(DotAttention):
    """``k . q / sqrt(d_k)`` (Vaswani et al. 2017, eq. 1)."""

    def score_projected(
        self, query: Float[Tensor, "B Q D"], projected_key: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B Q K"]:
        return super().score_projected(query, projected_key) / math.sqrt(projected_key.shape[-1])


class BilinearAttention(Attention):
    """``q^T M k`` (Luong's "general"); a head of multi-head attention is this with M = W_Q W_K^T."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.form = nn.Linear(d_key, d_query, bias=False)

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        prepared: Tensor = self.form(key)
        return prepared

    def score_projected(
        self, query: Float[Tensor, "B Q D"], projected_key: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B Q K"]:
        return query @ projected_key.mT

    def bilinear_factors(self) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]]:
        form = self.form.weight.detach()
        return torch.eye(len(form)).to(form), form


class InspectableAttention(nn.Module):
    """What can be looked into as attention: heads, each with weights over values that go through one output matrix.

    Taps: `query`, `key` and `value` (B, H, tokens, width), `weights` (B, H, Q, K), `mixed` (B, Q, widths of all heads).
    Of head h, key j carries ``value_j W_h`` to the output, W_h its slice of ``output.weight``.
    """

    output: nn.Linear
    positions: Positions

    def __init__(self, n_heads: int, d_value: int) -> None:
        super().__init__()
        self.n_heads, self.d_value = n_heads, d_value
        self.query, self.key, self.value, self.weights, self.mixed = Tap(), Tap(), Tap(), Tap(), Tap()

    def bilinear_factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        """``F`` and ``G`` if a head's score is ``(F q) . (G k)``; None if it is no bilinear form."""
        raise NotImplementedError


class RecurrentCrossAttention(InspectableAttention):
    """One head without projections: keys and values are the states of an encoder, queries those of a decoder."""

    def __init__(self, scorer: Attention, d_state: int, d_out: int) -> None:
        super().__init__(1, d_state)
        self.output = Linear(d_state, d_out, bias=False)
        self.positions = NoPositions()
        self.weights = scorer.weights
        self.scorer = scorer

    def project_kv(self, encoded: Float[Tensor, "B K D"]) -> KeyValue:
        """What is kept of a text, for any number of queries."""
        return KeyValue(self.key(self.scorer.project_key(encoded)[:, None]), self.value(encoded[:, None]))

    def cross_attend(
        self, x: Float[Tensor, "N Q D"], kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "N Q Do"]:
        """What queries see of the remembered texts; N rows may be several for each text, side by side."""
        query: Tensor = self.query(x.reshape(len(kv.key), 1, -1, x.shape[-1]))
        scores = self.scorer.score_projected(query[:, 0], kv.key[:, 0])[:, None]  # (B, 1, Q, K)
        weights: Tensor = self.weights(masked_softmax(scores, attention_mask))
        seen: Tensor = self.output(self.mixed((weights @ kv.value)[:, 0]))
        return seen.reshape(*x.shape[:-1], -1)

    def bilinear_factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        return self.scorer.bilinear_factors()


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

    def compute_weights(self, key: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B hops T"]:
        """The weights of each hop over the tokens that are there; zeros for a text without tokens."""
        scores = self.query @ key.mT / math.sqrt(key.shape[-1])  # (B, hops, T)
        blank = ~mask.any(-1)[:, None, None]
        scores = scores.masked_fill(~(mask[:, None] | blank), -math.inf)
        weights: Tensor = self.weights(scores.softmax(-1).masked_fill(blank, 0.0))
        return weights

    def forward(
        self, key: Float[Tensor, "B T D"], value: Float[Tensor, "B T Dv"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B hops Dv"]:
        return self.compute_weights(key, mask) @ value


def redundancy_penalty(weights: Float[Tensor, "B hops T"]) -> Float[Tensor, " B"]:
    """Lin et al.'s penalty ``||A A^T - I||_F^2``: how much the hops look at the same tokens."""
    gram = weights @ weights.mT
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - identity).square().sum((-2, -1))
