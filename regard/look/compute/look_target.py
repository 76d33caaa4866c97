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
from regard.nn import InspectableAttention
from regard.text.subwords import Word


class AttentionKind(NamedTuple):
    """A kind of attention: the name of its modules, on which side its queries and keys are, and does it look ahead?"""

    module_pattern: str
    query_side: str
    key_side: str
    causal: bool = False


ATTENTION_KINDS = {
    "encoder": AttentionKind("encoder.{}.attention", "encoder", "encoder"),
    "decoder": AttentionKind("decoder.{}.attention", "decoder", "decoder", causal=True),
    "cross": AttentionKind("decoder.{}.cross_attention", "decoder", "encoder"),
}


@dataclass(frozen=True)
class Side:
    """One text inside a model: its tokens, their words, and the tap through which its vectors enter the layers.

    Of a decoder, `next_tokens` are the tokens written after reading each of `tokens`.
    """

    tokens: list[str]
    words: list[Word]
    input_tap: str
    next_tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class LookTarget:
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
    run_layers: Callable[[], Float[Tensor, "1 T D"]]
    head: Callable[[Float[Tensor, "1 T D"]], Float[Tensor, "1 O V"]] | None
    predicted_ids: Int[Tensor, " O"]
    output_labels: tuple[str, ...] = ()
    output_side: str = ""
    output_token_weights: Callable[[], Float[Tensor, "O T"]] | None = None
    hops: Callable[[], Float[Tensor, "R T"]] | None = None
    is_regression: bool = False

    def run(self) -> Float[Tensor, "1 O V"]:
        """The logits, or what leaves the layers where nothing is made of it."""
        return self.run_layers() if self.head is None else self.head(self.run_layers())

    def explained_outputs(self) -> Float[Tensor, " O"]:
        """The numbers that gradients and faithfulness explain."""
        if self.head is None:
            raise InputError("this model gives vectors and predicts nothing, so there is no prediction to explain")
        outputs = self.run()[0]
        if self.is_regression:
            return outputs[:, 0]
        return outputs.log_softmax(-1).gather(1, self.predicted_ids[:, None])[:, 0]

    def n_layers(self, stack: str) -> int:
        """How many layers a stack has; none where the model has no such stack."""
        found = dict(self.model.named_children()).get(stack)
        return len(found) if isinstance(found, nn.ModuleList) else 0

    def attentions(self, kind: str) -> dict[str, InspectableAttention]:
        """The attention modules of a kind by name, in the order of the layers, of which not all need have one."""
        if kind not in ATTENTION_KINDS:
            raise InputError(f"no kind of attention is called '{kind}'; there are: {', '.join(ATTENTION_KINDS)}")
        if not (found := self._attentions_of_kind(kind)):
            raise InputError(f"this model has no {kind} attention; it has: {', '.join(self.kinds()) or 'none'}")
        return found

    def kinds(self) -> list[str]:
        """The kinds of attention this model has."""
        return [kind for kind in ATTENTION_KINDS if self._attentions_of_kind(kind)]

    def _attentions_of_kind(self, kind: str) -> dict[str, InspectableAttention]:
        names = [
            ATTENTION_KINDS[kind].module_pattern.format(layer)
            for layer in range(self.n_layers(ATTENTION_KINDS[kind].query_side))
        ]
        modules = dict(self.model.named_modules())
        named = {name: modules[name] for name in names if name in modules}
        return {name: module for name, module in named.items() if isinstance(module, InspectableAttention)}
