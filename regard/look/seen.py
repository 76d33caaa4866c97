"""What a model did with one text: `model.look(...)` gives a `Seen`, and each view of it is worked out when asked for.

Layers and heads are counted from 0, and -1 is the last. Every view of attention is (layers, heads, queries, keys).
"""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import InputError
from regard.look.attribution import attribution
from regard.look.effective import Identifiability, compact, effective_attention
from regard.look.rollout import flow, rollout, rollout_with_memory
from regard.look.similarity import Similarity, similarity
from regard.look.subject import KINDS, Subject
from regard.nn import record


class Seen:
    """The inside of a model while it took one text."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._attributions: dict[str, Tensor] = {}

    @property
    def tokens(self) -> dict[str, list[str]]:
        """The tokens of each side, as they enter it: ``<sos>`` before the target, ``<eos>`` after the source."""
        return {name: side.tokens for name, side in self.subject.sides.items()}

    @property
    def kinds(self) -> list[str]:
        """The kinds of attention there are to see."""
        return self.subject.kinds()

    @cached_property
    def _heard(self) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad(), record(self.subject.model, "*.weights", "*.value") as heard:
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
        weights = self.attention(kind)
        everything = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device)
        return everything.tril() if KINDS[kind].causal else everything

    def effective_attention(self, kind: str = "encoder", *, keep_row_sums: bool = False) -> Float[Tensor, "L H Q K"]:
        """The part of the weights that the output of each head can tell (look/effective.py)."""
        return self._effective(kind, keep_row_sums)[0]

    def identifiability(self, kind: str = "encoder") -> Identifiability:
        """Of each head and query: visible keys, rank, dimensions of the null space, share of the norm in it."""
        return self._effective(kind, False)[1]

    def norms(self, kind: str = "encoder") -> Float[Tensor, "L H Q K"]:
        """Weights times the length of what they carry, ``a_ij |T_j|`` (Kobayashi et al. 2020)."""
        length: Tensor = self._carried(kind, False).norm(dim=-1)  # (L, H, K)
        return self.attention(kind) * length[..., None, :]

    def attribution(self, layer: int = -1, stack: str = "encoder") -> Float[Tensor, "inputs T"]:
        """How much of each input token is in each output of a layer; columns sum to 1 (look/attribution.py).

        For a decoder the inputs are the tokens of the source, then those of the target.
        """
        found = self._attribution(stack)
        return found[self._index(layer, len(found), "layer")]

    def own_share(self, stack: str = "encoder") -> Float[Tensor, "L T"]:
        """How much of each token's output, layer by layer, is still that token."""
        return self._attribution(stack)[:, self._before(stack) :].diagonal(dim1=1, dim2=2)

    def strayed(self, stack: str = "encoder") -> Float[Tensor, " L"]:
        """The share of tokens, layer by layer, to which another token contributes more than they do themselves."""
        most = self._attribution(stack).argmax(1)
        own = torch.arange(most.shape[-1], device=most.device) + self._before(stack)
        return (most != own).double().mean(-1)

    def similarity(self, layer: int, head: int, kind: str = "encoder") -> Similarity:
        """The similarity of queries and keys that a head has learned (look/similarity.py)."""
        modules = list(self.subject.attentions(kind).values())
        module = modules[self._index(layer, len(modules), "layer")]
        number = self._index(head, module.n_heads, "head")
        query, key, _ = module.projection.weight.detach().split(module.widths)
        return similarity(*(part.view(module.n_heads, module.d_key, -1)[number] for part in (query, key)))

    def rollout(self, stack: str = "encoder") -> Float[Tensor, "L T inputs"]:
        """How inputs mix into each output if attention is all there is; a decoder's inputs are source, then target."""
        if stack == "decoder" and "cross" in self.kinds:
            return rollout_with_memory(self.attention("decoder"), self.attention("cross"), self.rollout("encoder")[-1])
        return rollout(self.attention(stack))

    def flow(self, output: int = -1, stack: str = "encoder") -> Float[Tensor, " T"]:
        """How much could flow from each input of a stack to one of its outputs, through its self-attention."""
        weights = self.attention(stack)
        return flow(weights, self._index(output, weights.shape[-1], "output"))

    def _carried(self, kind: str, keep_row_sums: bool) -> Float[Tensor, "L H K F"]:
        heard, _ = self._heard
        layers = []
        for name, module in self.subject.attentions(kind).items():
            by_head = module.output.weight.detach().unflatten(1, (module.n_heads, module.d_value)).transpose(0, 1)
            layers.append(compact(heard[f"{name}.value"][0], by_head, keep_row_sums=keep_row_sums))
        return torch.stack(layers)

    def _effective(self, kind: str, keep_row_sums: bool) -> tuple[Tensor, Identifiability]:
        return effective_attention(self.attention(kind), self._carried(kind, keep_row_sums), self.visible(kind))

    def _attribution(self, stack: str) -> Float[Tensor, "L inputs T"]:
        """The contributions of all inputs that the stack can see."""
        if stack not in self.subject.sides:
            raise InputError(f"this model has no {stack}; it has: {', '.join(self.subject.sides)}")
        if stack not in self._attributions:
            found = attribution(self.subject, stack)
            self._attributions[stack] = found[:, : self._before(stack) + found.shape[-1]]
        return self._attributions[stack]

    def _before(self, stack: str) -> int:
        """How many input tokens are on the sides before this one."""
        sides = list(self.subject.sides)
        return sum(len(self.subject.sides[name].tokens) for name in sides[: sides.index(stack)])

    @staticmethod
    def _index(number: int, count: int, name: str) -> int:
        if not -count <= number < count:
            raise InputError(f"{name} {number}: there are {count}, counted from 0")
        return number % count
