"""What a model did with one text: `model.look(...)` gives a `Seen`, and each view of it is worked out when asked for.

Layers and heads are counted from 0, and -1 is the last. Every view of attention is (layers, heads, queries, keys).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import InputError
from regard.look import views
from regard.look.attribution import Attribution, attribution, of_itself
from regard.look.effective import Identifiability, compact, effective_attention
from regard.look.faithfulness import Faithfulness, faithfulness, last_layer
from regard.look.gradients import Gradients, gradients
from regard.look.page import framed
from regard.look.rollout import flow, rollout, rollout_with_memory
from regard.look.save import check_form, holds_all, save, show
from regard.look.similarity import Similarity, similarity
from regard.look.subject import KINDS, Subject
from regard.look.tangents import entered
from regard.look.view import Sheet, by_words
from regard.nn import HeadedAttention, Positions, Sight, record


class Seen:
    """The inside of a model while it took one text."""

    def __init__(self, subject: Subject, about: Mapping[str, object] | None = None) -> None:
        self.subject: Subject = subject
        self._facts = dict(about or {})
        self._attributions: dict[tuple[str, int | None], Attribution] = {}
        self._effective: dict[tuple[str, bool], tuple[Tensor, Identifiability]] = {}

    @property
    def about(self) -> dict[str, object]:
        """What was looked at, and how far the pass that was seen is from the model as it really runs."""
        return {**self._facts, "difference": self.difference}

    @property
    def tokens(self) -> dict[str, list[str]]:
        """The tokens of each side, as they enter it: ``<sos>`` before the target, ``<eos>`` after the source."""
        return {name: side.tokens for name, side in self.subject.sides.items()}

    @property
    def kinds(self) -> list[str]:
        """The kinds of attention there are to see."""
        return self.subject.kinds()

    def usual(self, path: str | Path = "") -> str:
        """The view where none is named: of a page and JSON all, else attention, or pooling by it, or gradients."""
        return "all" if holds_all(path) else views.usual(self)

    @cached_property
    def _heard(self) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad(), record(self.subject.model, "*.weights", "*.value", needed=False) as heard:
            logits = self.subject.run()
        return heard, logits

    @cached_property
    def difference(self) -> float:
        """The largest difference between the logits of the pass that was seen and those of the model as it really runs.

        A pass that is listened to computes attention as written; otherwise it runs fused.
        """
        with torch.no_grad():
            return float((self.subject.run() - self._heard[1]).abs().max())

    def attention(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """The weights, as the model used them."""
        heard, _ = self._heard
        return torch.stack([heard[f"{name}.weights"][0] for name in self.subject.attentions(kind)])

    def visible(self, kind: str = "encoder") -> Bool[Tensor, "Q K"]:
        """Which keys each query may see."""
        _, query, key, causal = KINDS[kind]
        device = next(self.subject.model.parameters()).device
        everything = torch.ones(len(self.tokens[query]), len(self.tokens[key]), dtype=torch.bool, device=device)
        return everything.tril() if causal else everything

    def effective_attention(self, kind: str = "encoder", *, keep_row_sums: bool = False) -> Float[Tensor, "L H Q K"]:
        """The part of the weights that the output of each head can tell (look/effective.py)."""
        return self.effective(kind, keep_row_sums=keep_row_sums)[0]

    def identifiability(self, kind: str = "encoder") -> Identifiability:
        """Of each head and query: visible keys, rank, dimensions of the null space, share of the norm in it."""
        return self.effective(kind)[1]

    def norms(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """Weights times the length of what they carry, ``a_ij |T_j|`` (Kobayashi et al. 2020)."""
        weights, length = self.attention(kind), self._carried(kind, False).norm(dim=-1)  # (L, H, K) or (L, H, Q, K)
        by_query: Tensor = length if length.ndim == weights.ndim else length[..., None, :]
        return weights * by_query.to(weights.dtype)

    def attribution(
        self, layer: int = -1, stack: str = "encoder", estimate: int | None = None
    ) -> Float[Tensor, "inputs T"]:
        """How much of each input token is in each output of a layer; columns sum to 1 (look/attribution.py).

        For a decoder the inputs are the tokens of the source, then those of the target.
        """
        found = self.contributions(stack, estimate).share
        return found[self._index(layer, len(found), "layer")]

    def contributions(self, stack: str = "encoder", estimate: int | None = None) -> Attribution:
        """The attribution of all layers: exact, or estimated from so many random directions of each token."""
        if stack not in self.subject.sides:
            raise InputError(f"this model has no {stack}; it has: {', '.join(self.subject.sides)}")
        if (stack, estimate) not in self._attributions:
            found = attribution(self.subject, stack, estimate=estimate)
            inputs = self._before(stack) + found.share.shape[-1]
            self._attributions[stack, estimate] = Attribution(
                found.share[:, :inputs], None if found.error is None else found.error[:, :inputs]
            )
        return self._attributions[stack, estimate]

    def own_share(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, "L T"]:
        """How much of each token's output, layer by layer, is still that token."""
        return of_itself(self.contributions(stack, estimate).share)[0]

    def strayed(self, stack: str = "encoder", estimate: int | None = None) -> Float[Tensor, " L"]:
        """The share of tokens, layer by layer, to which another token contributes more than they do themselves."""
        return of_itself(self.contributions(stack, estimate).share)[1]

    def similarity(self, layer: int, head: int, kind: str = "encoder") -> Similarity:
        """The similarity of queries and keys that a head has learned (look/similarity.py)."""
        modules = list(self.subject.attentions(kind).values())
        module = modules[self._index(layer, len(modules), "layer")]
        number = self._index(head, module.n_heads, "head")
        if (factors := module.factors(number)) is None:
            raise InputError(f"{kind} attention has learned no bilinear form, so there is no similarity to show")
        return similarity(*factors)

    def rollout(self, stack: str = "encoder") -> Float[Tensor, "L T inputs"]:
        """How inputs mix into each output if attention is all there is; a decoder's inputs are source, then target."""
        if stack == "decoder" and "cross" in self.kinds:
            return rollout_with_memory(self.attention("decoder"), self.attention("cross"), self.rollout("encoder")[-1])
        return rollout(self.attention(stack))

    def flow(self, output: int = -1, stack: str = "encoder") -> Float[Tensor, " T"]:
        """How much could flow from each input of a stack to one of its outputs, through its self-attention."""
        weights = self.attention(stack)
        return flow(weights, self._index(output, weights.shape[-1], "output"))

    def gradients(self) -> Gradients:
        """What each input did to the log-probability of each predicted token (look/gradients.py)."""
        return self._gradients

    @cached_property
    def _gradients(self) -> Gradients:
        return gradients(self.subject)

    def faithfulness(self, words: bool = False, *, estimate: int | None = views.ESTIMATE) -> Faithfulness:
        """Which view to trust for what is predicted here (look/faithfulness.py); whole `words` are taken away.

        Attribution is estimated from a few directions; None compares the exact one. Views with a sign name first what
        speaks most for the prediction.
        """
        found, last = self.gradients(), list(self.subject.sides)[-1]
        compared = self._looked_at()
        if last in self.kinds:
            compared["rollout"] = self.rollout(last)[-1].T
        if self.subject.n_layers(last):
            compared["attribution"] = self.attribution(stack=last, estimate=estimate)
        if self.subject.reads is not None:
            reads = self.subject.reads()
            compared = {name: view @ reads.to(view).T for name, view in compared.items()}
            compared |= {"pooling": reads.T} if self.subject.hops is not None else {}
        compared["gradient_x_input"] = found.gradient_x_input
        compared["integrated_gradients"] = found.integrated_gradients
        own = self.visible(last).T
        allowed = torch.cat((own.new_ones(self._before(last), own.shape[1]), own))
        if self.subject.outputs:
            allowed = allowed.new_ones(len(allowed), len(self.subject.outputs))
        pieces = [
            [self._before(name) + piece for piece in word.pieces]
            for name, side in self.subject.sides.items()
            for word in side.words
        ]
        return faithfulness(self.subject, compared, allowed, groups=pieces if words else None)

    def _looked_at(self) -> dict[str, Float[Tensor, "inputs T"]]:
        """What the last layer looks at, in the views of attention; what no attention looks at has 0."""
        sides = list(self.subject.sides)
        kinds = {side: side if side == sides[-1] else "cross" for side in sides}
        if not (there := [kind for kind in kinds.values() if kind in self.kinds]):
            return {}
        n_outputs = self.attention(there[0]).shape[-2]
        compared = {}
        looks = {"attention": self.attention, "effective": self.effective_attention, "norms": self.norms}
        for name, look in looks.items():
            seen = {kind: look(kind) for kind in there}
            nothing = {side: seen[there[0]].new_zeros(1, 1, n_outputs, len(self.tokens[side])) for side in sides}
            compared[name] = last_layer(*(seen.get(kind, nothing[side]) for side, kind in kinds.items()))
        return compared

    def positions(self, side: str = "encoder") -> Float[Tensor, "T D"] | None:
        """The vectors added to the tokens of a side for their positions; None where its scheme adds none."""
        entrance = self.subject.sides[side].entrance
        scheme = dict(self.subject.model.named_modules()).get(entrance.replace(".out", ".positions"))
        if not isinstance(scheme, Positions):
            return None
        nothing = torch.zeros_like(entered(self.subject)[side])
        place = torch.arange(nothing.shape[1], device=nothing.device)[None]
        with torch.no_grad():
            vectors: Tensor = scheme.embed(nothing, place)[0]
        return vectors if vectors.any() else None

    def sheet(self, view: str = "all", *, words: bool = False, **asked: Any) -> Sheet:
        """The arrays of a view (look/views.py), or of all of them, for showing and saving; pieces merged to `words`.

        What may be asked for: `kind` (or stack), `layer`, `head`, and `estimate` for attribution.
        """
        found = views.sheet(self, view, views.Asked(words=words, **asked))
        facts = {**found.about, "merged": "words" if words else "tokens"}
        found = replace(found, about=facts)
        return by_words(found, {name: side.words for name, side in self.subject.sides.items()}) if words else found

    def save(self, path: str | Path, view: str | None = None, **asked: Any) -> Path:
        """Write a view as its suffix says: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf.

        Where no view is named, a page and JSON hold all of them, the others the usual one.
        """
        chosen = view or self.usual(path)
        check_form(path, views.there(self) if chosen == "all" else [chosen])
        return save(lambda: self.sheet(chosen, **asked), path)

    def show(self, view: str | None = None, **asked: Any) -> None:
        """Show a view, or the usual one: the page in a notebook, a map in a terminal."""
        show(self.sheet(view or self.usual(), **asked))

    def _repr_html_(self) -> str:
        return framed(self.sheet(self.usual()))

    def _carried(self, kind: str, keep_row_sums: bool) -> Float[Tensor, "L H *Q K F"]:
        """What each key carries through its head to the output; of every query where positions are added to values."""
        heard, _ = self._heard
        layers = []
        for name, module in self.subject.attentions(kind).items():
            by_head = module.output.weight.detach().unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)
            value = heard[f"{name}.value"][0]  # (H, K, E)
            if module.positions.needs_weights:
                value, by_head = value[:, None] + self._position_values(module, value), by_head[:, None]
            layers.append(compact(value, by_head, keep_row_sums=keep_row_sums))
        return torch.stack(layers)

    @staticmethod
    def _position_values(module: HeadedAttention, value: Float[Tensor, "H K E"]) -> Float[Tensor, "H K K E"]:
        """What positions add to the value of each key for each query: asked with all weight on one key at a time."""
        n_heads, n_keys, _ = value.shape
        place = torch.arange(n_keys, device=value.device).expand(n_keys, -1)
        one_key = torch.eye(n_keys).to(value)[:, None, None].expand(-1, n_heads, n_keys, -1)
        with torch.no_grad():
            added = module.positions.value(one_key, Sight(place, place))
        assert added is not None
        return added.permute(1, 2, 0, 3)

    def effective(self, kind: str = "encoder", *, keep_row_sums: bool = False) -> tuple[Tensor, Identifiability]:
        """Effective attention, and the identifiability it rests on, at once."""
        if (kind, keep_row_sums) not in self._effective:
            d_model = next(iter(self.subject.attentions(kind).values())).output.out_features
            carried = self._carried(kind, keep_row_sums)
            found = effective_attention(self.attention(kind), carried, self.visible(kind), d_model)
            self._effective[kind, keep_row_sums] = found
        return self._effective[kind, keep_row_sums]

    def _before(self, stack: str) -> int:
        """How many input tokens are on the sides before this one."""
        sides = list(self.subject.sides)
        return sum(len(self.subject.sides[name].tokens) for name in sides[: sides.index(stack)])

    @staticmethod
    def _index(number: int, count: int, name: str) -> int:
        if not -count <= number < count:
            raise InputError(f"{name} {number}: there are {count}, counted from 0")
        return number % count
