"""Single-head attention and attention pooling; multi-head attention is in nn/multihead.py.

The mechanisms that preceded the Transformer: additive (Bahdanau et al. 2015), dot-product and bilinear scores (Luong
et al. 2015), scaled dot product (Vaswani et al. 2017, eq. 1), pooling by learned queries (Yang et al. 2016, Lin et al.
2017). A score function is a subclass of `Attention` with one to four methods. Scores and weights always flow through
the taps of `ScoreTaps`. `RecurrentCrossAttention` is the cross-attention of a recurrent decoder; `InspectableAttention`
is the interface that it shares with multi-head attention and that regard.look relies on.
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
from regard.nn.tap import Tap, any_active


class ScoreTaps(nn.Module):
    """The steps from scores to weights, with a tap after each: `scores`, `masked_scores`, `weights`.

    Masked scores are -inf where a query may not attend to a key. A fully masked query keeps its scores, so that no
    softmax is over nothing, and its weights are 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.masked_scores, self.weights = Tap(), Tap(), Tap()

    def softmax(self, scores: Float[Tensor, "B *H Q K"], attention_mask: AttentionMask | None) -> Tensor:
        """Return the softmax over the keys each query may attend to; zeros for a fully masked query."""
        mask, fully_masked = (None, None) if attention_mask is None else attention_mask.fit_to(scores.ndim)
        scores = self.scores(scores)
        masked = self.masked_scores(scores if mask is None else scores.masked_fill(~mask, -math.inf))
        weights = masked.softmax(-1)
        tapped: Tensor = self.weights(weights if fully_masked is None else weights.masked_fill(fully_masked, 0.0))
        return tapped

    @property
    def are_active(self) -> bool:
        """Return True while one of the taps is active, so that weights have to be computed."""
        return any_active(self.scores, self.masked_scores, self.weights)


class Attention(ScoreTaps):
    """``out = sum_i a_i v_i`` with ``a = softmax_i(score(q, k_i))``; subclasses define the score.

    The score is split: `project_key` depends on the keys alone and is computed once for any number of queries;
    `score_projected` compares projected queries with projected keys. `project_value` is what is summed.
    """

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        return key

    def project_query(self, query: Float[Tensor, "B Q Dq"]) -> Float[Tensor, "B Q Dp"]:
        return query

    def project_value(self, value: Float[Tensor, "B K Dv"]) -> Float[Tensor, "B K Ev"]:
        return value

    def score_projected(
        self, query: Float[Tensor, "B Q Dq"], projected_key: Float[Tensor, "B K Dp"]
    ) -> Float[Tensor, "B Q K"]:
        raise NotImplementedError

    def score(self, query: Float[Tensor, "B Q Dq"], key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B Q K"]:
        return self.score_projected(self.project_query(query), self.project_key(key))

    def bilinear_factors(self) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        """Return ``F`` and ``G`` if the score is ``(F q) . (G k)``; None if it is not a bilinear form."""
        return None

    def forward(
        self,
        query: Float[Tensor, "B Q Dq"],
        key: Float[Tensor, "B K Dk"],
        value: Float[Tensor, "B K Dv"],
        attention_mask: AttentionMask | None = None,
    ) -> Float[Tensor, "B Q Ev"]:
        weights = self.softmax(self.score(query, key), attention_mask)
        return weights @ self.project_value(value)


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
        projected_query = query @ self.hidden.weight[:, self.d_key :].T
        energy: Tensor = self.energy(torch.tanh(projected_query[:, :, None] + projected_key[:, None]))  # (B, Q, K, 1)
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


class ProjectedAttention(ScaledDotAttention):
    """``softmax(Q K^T / sqrt(d_k)) V`` with ``Q = q W_Q``, ``K = k W_K``, ``V = v W_V`` (Vaswani et al. 2017, 3.2)."""

    def __init__(self, d_query: int, d_key: int, d_value: int, d_projected: int) -> None:
        super().__init__()
        self.query_projection = Linear(d_query, d_projected, bias=False)
        self.key_projection = Linear(d_key, d_projected, bias=False)
        self.value_projection = Linear(d_value, d_value, bias=False)

    def project_query(self, query: Float[Tensor, "B Q Dq"]) -> Float[Tensor, "B Q Dp"]:
        projected: Tensor = self.query_projection(query)
        return projected

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        projected: Tensor = self.key_projection(key)
        return projected

    def project_value(self, value: Float[Tensor, "B K Dv"]) -> Float[Tensor, "B K Ev"]:
        projected: Tensor = self.value_projection(value)
        return projected

    def bilinear_factors(self) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]]:
        return self.query_projection.weight.detach(), self.key_projection.weight.detach()


class TanhAttention(DotAttention):
    """``q . tanh(W k + b)``: the tanh layer of pooling (Yang et al. 2016, eq. 5 and 6; Lin et al. 2017, eq. 6)."""

    def __init__(self, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.hidden = Linear(d_key, d_hidden)

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        hidden: Tensor = self.hidden(key)
        return hidden.tanh()


class BilinearAttention(Attention):
    """``q^T M k`` (Luong's "general"); a head of multi-head attention is this with M = W_Q W_K^T."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(d_key, d_query, bias=False)

    def project_key(self, key: Float[Tensor, "B K Dk"]) -> Float[Tensor, "B K Dp"]:
        projected: Tensor = self.bilinear(key)
        return projected

    def score_projected(
        self, query: Float[Tensor, "B Q D"], projected_key: Float[Tensor, "B K D"]
    ) -> Float[Tensor, "B Q K"]:
        return query @ projected_key.mT

    def bilinear_factors(self) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]]:
        matrix = self.bilinear.weight.detach()
        return torch.eye(len(matrix)).to(matrix), matrix


class InspectableAttention(ScoreTaps):
    """Interface of attention with heads, each a weighted sum of values, and one output projection.

    Taps: `query`, `key` and `value` (B, H, tokens, width), `scores`, `masked_scores` and `weights` (B, H, Q, K),
    `mixed` (B, Q, widths of all heads): the concatenated outputs of the heads before the output projection. In head h,
    key j contributes ``weight_j value_j W_h`` to the output, where W_h is the head's slice of ``output.weight``.
    """

    output: nn.Linear
    positions: Positions

    def __init__(self, n_heads: int, d_value: int) -> None:
        super().__init__()
        self.n_heads, self.d_value = n_heads, d_value
        self.query, self.key, self.value, self.mixed = Tap(), Tap(), Tap(), Tap()

    def bilinear_factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        """Return ``F`` and ``G`` if a head's score is ``(F q) . (G k)``; None if it is not a bilinear form."""
        raise NotImplementedError


class RecurrentCrossAttention(InspectableAttention):
    """One head: encoder states are keys and values, decoder states are queries, projected where the scorer does so."""

    def __init__(self, scorer: Attention, d_state: int, d_out: int) -> None:
        super().__init__(1, d_state)
        self.output = Linear(d_state, d_out, bias=False)
        self.positions = NoPositions()
        self.scores, self.masked_scores, self.weights = scorer.scores, scorer.masked_scores, scorer.weights
        self.scorer = scorer

    def project_kv(self, encoded: Float[Tensor, "B K D"]) -> KeyValue:
        """Return the keys and values of encoded texts, computed once for any number of queries."""
        key, value = self.scorer.project_key(encoded), self.scorer.project_value(encoded)
        return KeyValue(self.key(key[:, None]), self.value(value[:, None]))

    def cross_attend(
        self, x: Float[Tensor, "N Q D"], kv: KeyValue, attention_mask: AttentionMask
    ) -> Float[Tensor, "N Q Do"]:
        """Attend to encoded texts; the N query rows may be several consecutive ones (beams) for each text."""
        projected = self.scorer.project_query(x.reshape(len(kv.key), -1, x.shape[-1]))
        query: Tensor = self.query(projected[:, None])
        scores = self.scorer.score_projected(query[:, 0], kv.key[:, 0])[:, None]  # (B, 1, Q, K)
        weights = self.softmax(scores, attention_mask)
        context: Tensor = self.output(self.mixed((weights @ kv.value)[:, 0]))
        return context.reshape(*x.shape[:-1], -1)

    def bilinear_factors(self, head: int) -> tuple[Float[Tensor, "E Dq"], Float[Tensor, "E Dk"]] | None:
        return self.scorer.bilinear_factors()


class AttentionPooling(nn.Module):
    """One vector per text and hop: ``softmax(score(q, K))^T V`` with one learned or fixed query per hop.

    The score is `scorer`'s, by default ``K q / sqrt(d)``. Keys and values are the vectors of the tokens, or what
    `key_projection` and `value_projection` make of them. A row may hold S texts; `mask` marks the tokens that belong to
    each. Several hops are Lin et al. 2017, with `redundancy_penalty` of their weights as an optional loss term.
    """

    def __init__(
        self,
        d_query: int,
        *,
        n_hops: int = 1,
        learned: bool = True,
        scorer: Attention | None = None,
        key_projection: nn.Module | None = None,
        value_projection: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.ones(n_hops, d_query), requires_grad=learned)
        scorer = scorer or ScaledDotAttention()
        self.weights, self.scorer = scorer.weights, scorer
        self.key_projection, self.value_projection = key_projection or nn.Identity(), value_projection or nn.Identity()
        if learned:
            nn.init.normal_(self.query, std=self.query_std)

    @property
    def query_std(self) -> float:
        """The standard deviation of initial queries, with which scores of unit keys have a deviation near 1."""
        width = self.query.shape[-1]
        return 1.0 if isinstance(self.scorer, ScaledDotAttention) else float(width**-0.5)

    def hop_weights(self, key: Float[Tensor, "B T D"], mask: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S R T"]:
        """Return the weights of R hops over the tokens of each text, unseen by the taps; zeros for an empty text."""
        return _softmax_over_text(_mask_other_texts(self._score(key), mask), mask)

    def forward(
        self, key: Float[Tensor, "B T D"], value: Float[Tensor, "B T Dv"], mask: Bool[Tensor, "B S T"]
    ) -> Float[Tensor, "B S R Ev"]:
        scores = self.scorer.scores(self._score(key))
        masked_scores = self.scorer.masked_scores(_mask_other_texts(scores, mask))
        weights: Tensor = self.weights(_softmax_over_text(masked_scores, mask))
        pooled: Tensor = weights.flatten(1, 2) @ self.value_projection(value)  # (B, S R, Ev)
        return pooled.view(*weights.shape[:3], -1)

    def _score(self, key: Float[Tensor, "B T D"]) -> Float[Tensor, "B 1 R T"]:
        query = self.query.expand(len(key), -1, -1)
        return self.scorer.score(query, self.key_projection(key))[:, None]


def _mask_other_texts(scores: Float[Tensor, "B 1 R T"], mask: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S R T"]:
    """Return the scores of each text, -inf at the tokens of others; those of an empty text are left."""
    is_kept = mask | ~mask.any(-1, keepdim=True)
    return scores.masked_fill(~is_kept[:, :, None], -math.inf)


def _softmax_over_text(scores: Float[Tensor, "B S R T"], mask: Bool[Tensor, "B S T"]) -> Float[Tensor, "B S R T"]:
    fully_masked = ~mask.any(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(fully_masked[:, :, None], 0.0)


def redundancy_penalty(weights: Float[Tensor, "B R T"]) -> Float[Tensor, " B"]:
    """Return ``||A A^T - I||_F^2``, which is large where hops attend to the same tokens (Lin et al. 2017, eq. 8)."""
    gram = weights @ weights.mT
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - identity).square().sum((-2, -1))
