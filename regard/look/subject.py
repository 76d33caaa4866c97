"""What is looked at: one text in one model, by the names of the model's taps.

A model is known by how its modules are called, so a new one needs nothing here:

    encoder.3.attention           self-attention of layer 3         kind "encoder"
    decoder.3.attention           masked self-attention             kind "decoder"
    decoder.3.cross_attention     what the decoder sees of a text   kind "cross"
    encoder.3.out, decoder.3.out  what leaves layer 3
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn import HeadedAttention
from regard.text.pieces import Word


class Kind(NamedTuple):
    """A kind of attention: the name of its modules, on which side its queries and keys are, and does it look ahead?"""

    module: str
    query: str
    key: str
    causal: bool = False


KINDS = {
    "encoder": Kind("encoder.{}.attention", "encoder", "encoder"),
    "decoder": Kind("decoder.{}.attention", "decoder", "decoder", causal=True),
    "cross": Kind("decoder.{}.cross_attention", "decoder", "encoder"),
}


@dataclass(frozen=True)
class Side:
    """One text inside a model: its tokens, the words they make up, and the tap its vectors enter the layers through."""

    tokens: list[str]
    words: list[Word]
    entrance: str


@dataclass(frozen=True)
class Subject:
    """A model and the text it is looked at with, alone in its row.

    `body` passes the text through all layers, `head` makes logits of what leaves them; a model that only gives vectors
    has none. `predicted` are the ids whose probability the views explain, one for each output. An output belongs to
    each token of the last side, unless `outputs` names others: then `reads` gives how much each token counts in them,
    and `outputs_side` is what they are called together where there is one for each word of a text.
    `hops` are the weights of a learned attention over the tokens of the text, where the model pools by one. Where
    `scored`, the outputs are not probabilities but explained as they are.
    """

    model: nn.Module
    sides: dict[str, Side]
    body: Callable[[], Float[Tensor, "1 T D"]]
    head: Callable[[Float[Tensor, "1 T D"]], Float[Tensor, "1 O V"]] | None
    predicted: Int[Tensor, " O"]
    outputs: tuple[str, ...] = ()
    outputs_side: str = ""
    reads: Callable[[], Float[Tensor, "O T"]] | None = None
    hops: Callable[[], Float[Tensor, "R T"]] | None = None
    scored: bool = False

    def run(self) -> Float[Tensor, "1 O V"]:
        """The logits, or what leaves the layers where nothing is made of it."""
        return self.body() if self.head is None else self.head(self.body())

    def explained(self) -> Float[Tensor, " O"]:
        """The numbers that gradients and faithfulness explain."""
        if self.head is None:
            raise InputError("this model gives vectors and predicts nothing, so there is no prediction to explain")
        outputs = self.run()[0]
        if self.scored:
            return outputs[:, 0]
        return outputs.log_softmax(-1).gather(1, self.predicted[:, None])[:, 0]

    def n_layers(self, stack: str) -> int:
        """How many layers a stack has; none where the model has no such stack."""
        found = dict(self.model.named_children()).get(stack)
        return len(found) if isinstance(found, nn.ModuleList) else 0

    def attentions(self, kind: str) -> dict[str, HeadedAttention]:
        """The attention modules of a kind by name, in the order of the layers, of which not all need have one."""
        if kind not in KINDS:
            raise InputError(f"no kind of attention is called '{kind}'; there are: {', '.join(KINDS)}")
        if not (found := self._found(kind)):
            raise InputError(f"this model has no {kind} attention; it has: {', '.join(self.kinds()) or 'none'}")
        return found

    def kinds(self) -> list[str]:
        """The kinds of attention this model has."""
        return [kind for kind in KINDS if self._found(kind)]

    def _found(self, kind: str) -> dict[str, HeadedAttention]:
        names = [KINDS[kind].module.format(layer) for layer in range(self.n_layers(KINDS[kind].query))]
        modules = dict(self.model.named_modules())
        named = {name: modules[name] for name in names if name in modules}
        return {name: module for name, module in named.items() if isinstance(module, HeadedAttention)}
