"""The analyses of one text in one model, each computed on first use and without any rendering.

Layers and heads are counted from 0, and -1 is the last. Every array of attention is (layers, heads, queries, keys).
look/views/registry.py turns the results into view data; look/inspection.py is the object a user gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import InputError
from regard.look.compute.alternative_attention import AlternativeAttention, find_alternative_attention
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
from regard.models.finite_outputs import check_finite
from regard.nn import AttentionMask, InspectableAttention, Positions, edit, record


class TextAnalysis:
    """Attention, attribution, gradients and faithfulness of a model on one text."""

    def __init__(self, look_target: LookTarget, about: Mapping[str, object] | None = None) -> None:
        self.look_target: LookTarget = look_target
        self._metadata = dict(about or {})
        self._attributions: dict[tuple[str, int | None], TokenAttribution] = {}
        self._faithfulness: dict[tuple[bool, int | None], Faithfulness] = {}
        self._alternatives: dict[tuple[str, int | None, int | None], AlternativeAttention] = {}
        self._effective: dict[tuple[str, bool], tuple[Tensor, AttentionIdentifiability]] = {}

    @property
    def about(self) -> dict[str, object]:
        """Return the facts of this analysis, with the difference between the recorded and the fused pass."""
        return {**self._metadata, "difference": self.difference}

    @property
    def tokens(self) -> dict[str, list[str]]:
        """Return the tokens each side reads: ``<sos>`` comes first in a target, ``<eos>`` last in a source."""
        return {name: side.tokens for name, side in self.look_target.sides.items()}

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of attention this model has."""
        return self.look_target.kinds()

    @cached_property
    def _recorded(self) -> tuple[dict[str, Tensor], Tensor]:
        taps = ("*.scores", "*.weights", "*.value")
        with torch.no_grad(), record(self.look_target.model, *taps, required=False) as recorded:
            logits = check_finite(self.look_target.run())
        return recorded, logits

    @cached_property
    def difference(self) -> float:
        """Return the largest difference between the logits of the recorded pass and of the model as it normally runs.

        While taps record, attention computes explicit weights; otherwise it runs fused.
        """
        with torch.no_grad():
            return float((self.look_target.run() - self._recorded[1]).abs().max())

    def attention(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """Return the attention weights as the model used them."""
        recorded, _ = self._recorded
        return torch.stack([recorded[f"{name}.weights"][0] for name in self.look_target.attentions(kind)])

    def scores(self, kind: str = "encoder", *, masked: bool = True) -> Float[Tensor, "L H Q K"]:
        """Return the attention scores before the softmax; where `masked`, NaN for keys a query may not attend to."""
        recorded, _ = self._recorded
        scores = torch.stack([recorded[f"{name}.scores"][0] for name in self.look_target.attentions(kind)])
        return scores.masked_fill(~self.attention_mask(kind), torch.nan) if masked else scores

    def attention_mask(self, kind: str = "encoder") -> Bool[Tensor, "Q K"]:
        """Return the mask of keys that each query may attend to."""
        _, query, key, causal = ATTENTION_KINDS[kind]
        device = next(self.look_target.model.parameters()).device
        mask = torch.ones(len(self.tokens[query]), len(self.tokens[key]), dtype=torch.bool, device=device)
        directions = "forward" if causal else self.look_target.sides[query].directions if query == key else "both"
        return {"forward": mask.tril(), "backward": mask.triu(), "both": mask}[directions]

    def effective_attention(self, kind: str = "encoder", *, keep_row_sums: bool = False) -> Float[Tensor, "L H Q K"]:
        """Return the part of the weights that affects each head's output (look/compute/effective_attention.py)."""
        return self.effective_with_identifiability(kind, keep_row_sums=keep_row_sums)[0]

    def identifiability(self, kind: str = "encoder") -> AttentionIdentifiability:
        """Return keys, rank, null-space dimensions and null-space fraction of the norm, per head and query."""
        return self.effective_with_identifiability(kind)[1]

    def alternative_attention(
        self, kind: str = "encoder", *, layer: int | None = None, head: int | None = None
    ) -> AlternativeAttention:
        """Return other weights that give each head the same output (look/compute/alternative_attention.py).

        With `layer` or `head` only that one is searched; the axes of layers and heads stay.
        """
        if (kind, layer, head) not in self._alternatives:
            weights, values = self.attention(kind), self._transformed_values(kind, False)
            layers, heads = self._select(layer, weights.shape[0], "layer"), self._select(head, weights.shape[1], "head")
            chosen, theirs = (part[layers][:, heads].flatten(0, 1) for part in (weights, values))
            alternative = find_alternative_attention(chosen, theirs, self.attention_mask(kind))
            shape = (len(weights[layers]), len(weights[0, heads]))
            self._alternatives[kind, layer, head] = AlternativeAttention(
                *(part.unflatten(0, shape) for part in alternative)
            )
        return self._alternatives[kind, layer, head]

    def output_change_with(
        self, kind: str, weights: Float[Tensor, "L H Q K"], *, layer: int | None = None, head: int | None = None
    ) -> float:
        """Return the largest change of the model's output with these weights in place of its own."""
        names = list(self.look_target.attentions(kind))
        layers = range(len(names))[self._select(layer, len(names), "layer")]

        def replace_in(own: Tensor, new: Float[Tensor, "H Q K"]) -> Tensor:
            changed = own.clone()
            changed[0, self._select(head, own.shape[1], "head")] = new.to(own)
            return changed

        with torch.no_grad(), ExitStack() as edits:
            for number, new in zip(layers, weights, strict=True):
                edits.enter_context(
                    edit(self.look_target.model, f"{names[number]}.weights", partial(replace_in, new=new))
                )
            return float((self.look_target.run() - self._recorded[1]).abs().max())

    def norms(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """Return weights times the norm of the transformed values, ``a_ij |f(x_j)|`` (Kobayashi et al. 2020)."""
        weights = self.attention(kind)
        norm = self._transformed_values(kind, False).norm(dim=-1)  # (L, H, K) or (L, H, Q, K)
        by_query: Tensor = norm if norm.ndim == weights.ndim else norm[..., None, :]
        return weights * by_query.to(weights.dtype)

    def attribution(
        self, layer: int = -1, stack: str = "encoder", estimate: int | None = None
    ) -> Float[Tensor, "inputs T"]:
        """Return the contribution of each input to each output of a layer; columns sum to 1.

        For a decoder the inputs are the tokens of the source, then those of the target.
        """
        contribution = self.contributions(stack, estimate).contribution
        return contribution[self._check_index(layer, len(contribution), "layer")]

    def contributions(self, stack: str = "encoder", estimate: int | None = None) -> TokenAttribution:
        """Return the attribution of all layers: exact, or estimated from `estimate` random directions per token."""
        if stack not in self.look_target.sides:
            raise InputError(f"this model has no {stack}; it has: {', '.join(self.look_target.sides)}")
        if (stack, estimate) not in self._attributions:
            attribution = compute_attribution(self.look_target, stack, estimate=estimate)
            n_inputs = self._n_inputs_before(stack) + attribution.contribution.shape[-1]
            error = None if attribution.error is None else attribution.error[:, :n_inputs]
            self._attributions[stack, estimate] = TokenAttribution(attribution.contribution[:, :n_inputs], error)
        return self._attributions[stack, estimate]

    def self_contribution(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, "L T"]:
        """Return the contribution of each token to its own output, layer by layer."""
        return self_contribution_summary(self.contributions(stack, estimate).contribution)[0]

    def dominated_fraction(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, " L"]:
        """Return, layer by layer, the fraction of outputs to which another input contributes more than their own."""
        return self_contribution_summary(self.contributions(stack, estimate).contribution)[1]

    def similarity(self, layer: int, head: int, kind: str = "encoder") -> HeadSimilarity:
        """Return the similarity of queries and keys that a head has learned (look/compute/similarity.py)."""
        modules = list(self.look_target.attentions(kind).values())
        module = modules[self._check_index(layer, len(modules), "layer")]
        number = self._check_index(head, module.n_heads, "head")
        if (factors := module.bilinear_factors(number)) is None:
            raise InputError(f"{kind} attention does not score by a bilinear form, so it has learned no similarity")
        return compute_similarity(*factors)

    def rollout(self, stack: str = "encoder") -> Float[Tensor, "L T inputs"]:
        """Return attention rollout; a decoder's inputs are source, then target (Abnar and Zuidema 2020)."""
        if stack == "decoder" and "cross" in self.kinds:
            return decoder_rollout(self.attention("decoder"), self.attention("cross"), self.rollout("encoder")[-1])
        return attention_rollout(self.attention(stack))

    def flow(self, output: int = -1, stack: str = "encoder") -> Float[Tensor, " T"]:
        """Return attention flow from each input of a stack to one of its outputs (Abnar and Zuidema 2020)."""
        weights = self.attention(stack)
        return attention_flow(weights, self._check_index(output, weights.shape[-1], "output"))

    def gradients(self) -> GradientAttribution:
        """Return the gradient attribution of each prediction to each input (look/compute/gradients.py)."""
        return self._gradients

    @cached_property
    def _gradients(self) -> GradientAttribution:
        return compute_gradients(self.look_target)

    def faithfulness(self, words: bool = False, *, estimate: int | None = N_ESTIMATE_DIRECTIONS) -> Faithfulness:
        """Measure which view to trust for this prediction (look/compute/faithfulness.py), removing whole `words`.

        Attribution is estimated from a few directions; with None the exact one is compared. Signed views rank first the
        inputs that speak most for the prediction.
        """
        if (words, estimate) not in self._faithfulness:
            groups = [
                [self._n_inputs_before(name) + index for index in word.token_indices]
                for name, side in self.look_target.sides.items()
                for word in side.words
            ]
            self._faithfulness[words, estimate] = measure_faithfulness(
                self.look_target, self.importances(estimate), self._visible_inputs(), groups=groups if words else None
            )
        return self._faithfulness[words, estimate]

    def importances(self, estimate: int | None = N_ESTIMATE_DIRECTIONS) -> dict[str, Float[Tensor, "inputs O"]]:
        """Return the importance of every input to every output by each view that ranks inputs."""
        gradients, last = self.gradients(), list(self.look_target.sides)[-1]
        views = self._last_layer_importances()
        if last in self.kinds:
            views["rollout"] = self.rollout(last)[-1].T
        if self.look_target.n_layers(last):
            views["attribution"] = self.attribution(stack=last, estimate=estimate)
        if self.look_target.output_token_weights is not None:
            token_weights = self.look_target.output_token_weights()
            views = {name: view @ token_weights.to(view).T for name, view in views.items()}
            views |= {"pooling": token_weights.T} if self.look_target.hops is not None else {}
        views["gradient_x_input"] = gradients.gradient_x_input
        views["integrated_gradients"] = gradients.integrated_gradients
        return views

    def _visible_inputs(self) -> Bool[Tensor, "inputs O"]:
        """Return a mask of the inputs that each output may depend on."""
        last = list(self.look_target.sides)[-1]
        own = self.attention_mask(last).T
        mask = torch.cat((own.new_ones(self._n_inputs_before(last), own.shape[1]), own))
        n_outputs = len(self.look_target.output_labels)
        return mask.new_ones(len(mask), n_outputs) if n_outputs else mask

    def _last_layer_importances(self) -> dict[str, Float[Tensor, "inputs T"]]:
        """Return the attention of the last layer in each of its views; an input without attention to it has 0."""
        sides = list(self.look_target.sides)
        kinds = {side: side if side == sides[-1] else "cross" for side in sides}
        if not (available := [kind for kind in kinds.values() if kind in self.kinds]):
            return {}
        n_outputs = self.attention(available[0]).shape[-2]
        importances = {}
        views = {"attention": self.attention, "effective": self.effective_attention, "norms": self.norms}
        for name, view in views.items():
            weights = {kind: view(kind) for kind in available}
            zeros = {side: weights[available[0]].new_zeros(1, 1, n_outputs, len(self.tokens[side])) for side in sides}
            importances[name] = last_layer_importance(*(weights.get(kind, zeros[side]) for side, kind in kinds.items()))
        return importances

    def position_vectors(self, side: str = "encoder") -> Float[Tensor, "T D"] | None:
        """Return the position vectors added to the tokens of a side; None where its scheme adds none."""
        input_tap = self.look_target.sides[side].input_tap
        scheme = dict(self.look_target.model.named_modules()).get(input_tap.replace(".out", ".positions"))
        if not isinstance(scheme, Positions):
            return None
        zeros = torch.zeros_like(record_inputs(self.look_target)[side])
        position = torch.arange(zeros.shape[1], device=zeros.device)[None]
        with torch.no_grad():
            vectors: Tensor = scheme.embed(zeros, position)[0]
        return vectors if vectors.any() else None

    def _transformed_values(self, kind: str, keep_row_sums: bool) -> Float[Tensor, "L H *Q K F"]:
        """Return each value projected by its head's part of W_O; per query where positions are added to values."""
        recorded, _ = self._recorded
        layers = []
        for name, module in self.look_target.attentions(kind).items():
            by_head = module.output.weight.detach().unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)
            value = recorded[f"{name}.value"][0]  # (H, K, E)
            if module.positions.needs_weights:
                value, by_head = value[:, None] + self._position_values(module, value), by_head[:, None]
            layers.append(compact_head_values(value, by_head, keep_row_sums=keep_row_sums))
        return torch.stack(layers)

    @staticmethod
    def _position_values(module: InspectableAttention, value: Float[Tensor, "H K E"]) -> Float[Tensor, "H K K E"]:
        """Return the position term of each key's value for each query, by putting all weight on one key at a time."""
        n_heads, n_keys, _ = value.shape
        position = torch.arange(n_keys, device=value.device).expand(n_keys, -1)
        one_key = torch.eye(n_keys).to(value)[:, None, None].expand(-1, n_heads, n_keys, -1)
        with torch.no_grad():
            added = module.positions.value_bias(one_key, AttentionMask(position, position))
        assert added is not None
        return added.permute(1, 2, 0, 3)

    def effective_with_identifiability(
        self, kind: str = "encoder", *, keep_row_sums: bool = False
    ) -> tuple[Tensor, AttentionIdentifiability]:
        """Return effective attention and the identifiability computed with it."""
        if (kind, keep_row_sums) not in self._effective:
            d_model = next(iter(self.look_target.attentions(kind).values())).output.out_features
            values = self._transformed_values(kind, keep_row_sums)
            result = effective_attention(self.attention(kind), values, self.attention_mask(kind), d_model)
            self._effective[kind, keep_row_sums] = result
        return self._effective[kind, keep_row_sums]

    def _n_inputs_before(self, stack: str) -> int:
        """Return the number of input tokens on the sides before this one."""
        sides = list(self.look_target.sides)
        return sum(len(self.look_target.sides[name].tokens) for name in sides[: sides.index(stack)])

    @classmethod
    def _select(cls, number: int | None, count: int, name: str) -> slice:
        """Return a slice of all layers or heads, or of one of them."""
        if number is None:
            return slice(None)
        index = cls._check_index(number, count, name)
        return slice(index, index + 1)

    @staticmethod
    def _check_index(number: int, count: int, name: str) -> int:
        if not -count <= number < count:
            raise InputError(f"{name} {number}: there are {count}, counted from 0")
        return number % count
