"""The analyses of one text in one model, each computed on first use and without any rendering.

Layers and heads are counted from 0, and -1 is the last. Every array of attention is (layers, heads, queries, keys).
look/views/registry.py turns the results into view data; look/inspection.py is the object a user gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import InputError
from regard.look.compute.attribution import TokenAttribution, compute_attribution, self_contribution_summary
from regard.look.compute.effective_attention import AttentionIdentifiability, compact_head_values, effective_attention
from regard.look.compute.faithfulness import (
    N_ESTIMATE_DIRECTIONS,
    Faithfulness,
    last_layer_importance,
    measure_faithfulness,
)
from regard.look.compute.gradients import GradientAttribution, compute_gradients
from regard.look.compute.jvp import record_inputs
from regard.look.compute.look_target import ATTENTION_KINDS, LookTarget
from regard.look.compute.rollout import attention_flow, attention_rollout, decoder_rollout
from regard.look.compute.similarity import HeadSimilarity, compute_similarity
from regard.nn import AttentionMask, InspectableAttention, Positions, record


class TextAnalysis:
    """Attention, attribution, gradients and faithfulness of a model on one text."""

    def __init__(self, look_target: LookTarget, about: Mapping[str, object] | None = None) -> None:
        self.look_target: LookTarget = look_target
        self._metadata = dict(about or {})
        self._attributions: dict[tuple[str, int | None], TokenAttribution] = {}
        self._effective: dict[tuple[str, bool], tuple[Tensor, AttentionIdentifiability]] = {}

    @property
    def about(self) -> dict[str, object]:
        """What was looked at, and how far the pass that was seen is from the model as it really runs."""
        return {**self._metadata, "difference": self.difference}

    @property
    def tokens(self) -> dict[str, list[str]]:
        """The tokens of each side, as they enter it: ``<sos>`` before the target, ``<eos>`` after the source."""
        return {name: side.tokens for name, side in self.look_target.sides.items()}

    @property
    def kinds(self) -> list[str]:
        """The kinds of attention there are to see."""
        return self.look_target.kinds()

    @cached_property
    def _recorded(self) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad(), record(self.look_target.model, "*.weights", "*.value", required=False) as heard:
            logits = self.look_target.run()
        return heard, logits

    @cached_property
    def difference(self) -> float:
        """The largest difference between the logits of the pass that was seen and those of the model as it really runs.

        A pass that is listened to computes attention as written; otherwise it runs fused.
        """
        with torch.no_grad():
            return float((self.look_target.run() - self._recorded[1]).abs().max())

    def attention(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """The weights, as the model used them."""
        heard, _ = self._recorded
        return torch.stack([heard[f"{name}.weights"][0] for name in self.look_target.attentions(kind)])

    def attention_mask(self, kind: str = "encoder") -> Bool[Tensor, "Q K"]:
        """Which keys each query may see."""
        _, query, key, causal = ATTENTION_KINDS[kind]
        device = next(self.look_target.model.parameters()).device
        everything = torch.ones(len(self.tokens[query]), len(self.tokens[key]), dtype=torch.bool, device=device)
        return everything.tril() if causal else everything

    def effective_attention(self, kind: str = "encoder", *, keep_row_sums: bool = False) -> Float[Tensor, "L H Q K"]:
        """The part of the weights that the output of each head can tell (look/compute/effective_attention.py)."""
        return self.effective_with_identifiability(kind, keep_row_sums=keep_row_sums)[0]

    def identifiability(self, kind: str = "encoder") -> AttentionIdentifiability:
        """Of each head and query: visible keys, rank, dimensions of the null space, share of the norm in it."""
        return self.effective_with_identifiability(kind)[1]

    def norms(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """Weights times the length of what they carry, ``a_ij |T_j|`` (Kobayashi et al. 2020)."""
        weights, length = (
            self.attention(kind),
            self._transformed_values(kind, False).norm(dim=-1),
        )  # (L, H, K) or (L, H, Q, K)
        by_query: Tensor = length if length.ndim == weights.ndim else length[..., None, :]
        return weights * by_query.to(weights.dtype)

    def attribution(
        self, layer: int = -1, stack: str = "encoder", estimate: int | None = None
    ) -> Float[Tensor, "inputs T"]:
        """How much of each input token is in each output of a layer; columns sum to 1 (look/compute/attribution.py).

        For a decoder the inputs are the tokens of the source, then those of the target.
        """
        found = self.contributions(stack, estimate).contribution
        return found[self._check_index(layer, len(found), "layer")]

    def contributions(self, stack: str = "encoder", estimate: int | None = None) -> TokenAttribution:
        """The attribution of all layers: exact, or estimated from so many random directions of each token."""
        if stack not in self.look_target.sides:
            raise InputError(f"this model has no {stack}; it has: {', '.join(self.look_target.sides)}")
        if (stack, estimate) not in self._attributions:
            found = compute_attribution(self.look_target, stack, estimate=estimate)
            inputs = self._n_inputs_before(stack) + found.contribution.shape[-1]
            self._attributions[stack, estimate] = TokenAttribution(
                found.contribution[:, :inputs], None if found.error is None else found.error[:, :inputs]
            )
        return self._attributions[stack, estimate]

    def self_contribution(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, "L T"]:
        """How much of each token's output, layer by layer, is still that token."""
        return self_contribution_summary(self.contributions(stack, estimate).contribution)[0]

    def dominated_fraction(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, " L"]:
        """The share of tokens, layer by layer, to which another token contributes more than they do themselves."""
        return self_contribution_summary(self.contributions(stack, estimate).contribution)[1]

    def similarity(self, layer: int, head: int, kind: str = "encoder") -> HeadSimilarity:
        """The similarity of queries and keys that a head has learned (look/compute/similarity.py)."""
        modules = list(self.look_target.attentions(kind).values())
        module = modules[self._check_index(layer, len(modules), "layer")]
        number = self._check_index(head, module.n_heads, "head")
        if (factors := module.bilinear_factors(number)) is None:
            raise InputError(f"{kind} attention has learned no bilinear form, so there is no similarity to show")
        return compute_similarity(*factors)

    def rollout(self, stack: str = "encoder") -> Float[Tensor, "L T inputs"]:
        """How inputs mix into each output if attention is all there is; a decoder's inputs are source, then target."""
        if stack == "decoder" and "cross" in self.kinds:
            return decoder_rollout(self.attention("decoder"), self.attention("cross"), self.rollout("encoder")[-1])
        return attention_rollout(self.attention(stack))

    def flow(self, output: int = -1, stack: str = "encoder") -> Float[Tensor, " T"]:
        """How much could flow from each input of a stack to one of its outputs, through its self-attention."""
        weights = self.attention(stack)
        return attention_flow(weights, self._check_index(output, weights.shape[-1], "output"))

    def gradients(self) -> GradientAttribution:
        """What each input did to the log-probability of each predicted token (look/compute/gradients.py)."""
        return self._gradients

    @cached_property
    def _gradients(self) -> GradientAttribution:
        return compute_gradients(self.look_target)

    def faithfulness(self, words: bool = False, *, estimate: int | None = N_ESTIMATE_DIRECTIONS) -> Faithfulness:
        """Which view to trust for what is predicted here (look/compute/faithfulness.py); whole `words` are taken away.

        Attribution is estimated from a few directions; None compares the exact one. Views with a sign name first what
        speaks most for the prediction.
        """
        found, last = self.gradients(), list(self.look_target.sides)[-1]
        compared = self._last_layer_importances()
        if last in self.kinds:
            compared["rollout"] = self.rollout(last)[-1].T
        if self.look_target.n_layers(last):
            compared["attribution"] = self.attribution(stack=last, estimate=estimate)
        if self.look_target.output_token_weights is not None:
            reads = self.look_target.output_token_weights()
            compared = {name: view @ reads.to(view).T for name, view in compared.items()}
            compared |= {"pooling": reads.T} if self.look_target.hops is not None else {}
        compared["gradient_x_input"] = found.gradient_x_input
        compared["integrated_gradients"] = found.integrated_gradients
        own = self.attention_mask(last).T
        allowed = torch.cat((own.new_ones(self._n_inputs_before(last), own.shape[1]), own))
        if self.look_target.output_labels:
            allowed = allowed.new_ones(len(allowed), len(self.look_target.output_labels))
        pieces = [
            [self._n_inputs_before(name) + piece for piece in word.token_indices]
            for name, side in self.look_target.sides.items()
            for word in side.words
        ]
        return measure_faithfulness(self.look_target, compared, allowed, groups=pieces if words else None)

    def _last_layer_importances(self) -> dict[str, Float[Tensor, "inputs T"]]:
        """What the last layer looks at, in the views of attention; what no attention looks at has 0."""
        sides = list(self.look_target.sides)
        kinds = {side: side if side == sides[-1] else "cross" for side in sides}
        if not (there := [kind for kind in kinds.values() if kind in self.kinds]):
            return {}
        n_outputs = self.attention(there[0]).shape[-2]
        compared = {}
        looks = {"attention": self.attention, "effective": self.effective_attention, "norms": self.norms}
        for name, look in looks.items():
            seen = {kind: look(kind) for kind in there}
            nothing = {side: seen[there[0]].new_zeros(1, 1, n_outputs, len(self.tokens[side])) for side in sides}
            compared[name] = last_layer_importance(*(seen.get(kind, nothing[side]) for side, kind in kinds.items()))
        return compared

    def position_vectors(self, side: str = "encoder") -> Float[Tensor, "T D"] | None:
        """The vectors added to the tokens of a side for their positions; None where its scheme adds none."""
        entrance = self.look_target.sides[side].input_tap
        scheme = dict(self.look_target.model.named_modules()).get(entrance.replace(".out", ".positions"))
        if not isinstance(scheme, Positions):
            return None
        nothing = torch.zeros_like(record_inputs(self.look_target)[side])
        place = torch.arange(nothing.shape[1], device=nothing.device)[None]
        with torch.no_grad():
            vectors: Tensor = scheme.embed(nothing, place)[0]
        return vectors if vectors.any() else None

    def _transformed_values(self, kind: str, keep_row_sums: bool) -> Float[Tensor, "L H *Q K F"]:
        """What each key carries through its head to the output; of every query where positions are added to values."""
        heard, _ = self._recorded
        layers = []
        for name, module in self.look_target.attentions(kind).items():
            by_head = module.output.weight.detach().unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)
            value = heard[f"{name}.value"][0]  # (H, K, E)
            if module.positions.needs_weights:
                value, by_head = value[:, None] + self._position_values(module, value), by_head[:, None]
            layers.append(compact_head_values(value, by_head, keep_row_sums=keep_row_sums))
        return torch.stack(layers)

    @staticmethod
    def _position_values(module: InspectableAttention, value: Float[Tensor, "H K E"]) -> Float[Tensor, "H K K E"]:
        """What positions add to the value of each key for each query: asked with all weight on one key at a time."""
        n_heads, n_keys, _ = value.shape
        place = torch.arange(n_keys, device=value.device).expand(n_keys, -1)
        one_key = torch.eye(n_keys).to(value)[:, None, None].expand(-1, n_heads, n_keys, -1)
        with torch.no_grad():
            added = module.positions.value_bias(one_key, AttentionMask(place, place))
        assert added is not None
        return added.permute(1, 2, 0, 3)

    def effective_with_identifiability(
        self, kind: str = "encoder", *, keep_row_sums: bool = False
    ) -> tuple[Tensor, AttentionIdentifiability]:
        """Effective attention, and the identifiability it rests on, at once."""
        if (kind, keep_row_sums) not in self._effective:
            d_model = next(iter(self.look_target.attentions(kind).values())).output.out_features
            carried = self._transformed_values(kind, keep_row_sums)
            found = effective_attention(self.attention(kind), carried, self.attention_mask(kind), d_model)
            self._effective[kind, keep_row_sums] = found
        return self._effective[kind, keep_row_sums]

    def _n_inputs_before(self, stack: str) -> int:
        """How many input tokens are on the sides before this one."""
        sides = list(self.look_target.sides)
        return sum(len(self.look_target.sides[name].tokens) for name in sides[: sides.index(stack)])

    @staticmethod
    def _check_index(number: int, count: int, name: str) -> int:
        if not -count <= number < count:
            raise InputError(f"{name} {number}: there are {count}, counted from 0")
        return number % count
