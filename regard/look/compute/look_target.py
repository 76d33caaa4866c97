"""The target of a look: one text in one model, addressed by the names of the model's taps.

Models are recognised by their module names, so a new one needs nothing here:

    encoder.3.attention           self-attention of layer 3         kind "encoder"
    decoder.3.attention           masked self-attention             kind "decoder"
    decoder.3.cross_attention     cross-attention to the source     kind "cross"
    encoder.3.out, decoder.3.out  output of layer 3
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import InputError
from regard.nn import InspectableAttention
from regard.nn.quantization import is_quantized
from regard.text.subwords import Word

EXACT_DTYPES = (torch.float32, torch.float64)
"""Precisions in which derivatives and differences between attentions are more than rounding."""


class AttentionKind(NamedTuple):
    """A kind of attention: the pattern of its module names, the sides of its queries and keys, and if it is causal."""

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

    Of a decoder, `next_tokens` are the tokens written after reading each of `tokens`. `directions` are those in which
    an encoder reads.
    """

    tokens: list[str]
    words: list[Word]
    input_tap: str
    next_tokens: tuple[str, ...] = ()
    directions: str = "both"


@dataclass(frozen=True)
class SentenceAttention:
    """Attention over the sentences of a text, and within each over its tokens (Yang et al. 2016).

    `words` is the weight of each token in its sentence, `owner` the number of that sentence, from 0.
    """

    sentences: Float[Tensor, " N"]
    words: Float[Tensor, " T"]
    owner: Int[Tensor, " T"]


@dataclass(frozen=True)
class LookTarget:
    """A model and one text, alone in its row.

    `run_layers` passes the text through all layers, `head` maps hidden states to logits; a model that only returns
    vectors has no head. `predicted_ids` are the ids whose log-probability the views explain, one per output. There is
    an output per token of the last side, unless `output_labels` names others: then `output_token_weights` gives the
    weight of each token in them, and `output_side` is their side where there is one per word. `hops` are the weights
    of attention pooling, if the model has it, and `levels` those of its two levels if it is hierarchical. With
    `is_regression`, the outputs themselves are explained instead of log-probabilities. `output_unit` says in messages
    what an output chooses, where it is no token, class or label.
    """

    model: nn.Module
    sides: dict[str, Side]
    run_layers: Callable[[], Float[Tensor, "1 T D"]]
    head: Callable[[Float[Tensor, "1 T D"]], Float[Tensor, "1 O V"]] | None
    predicted_ids: Int[Tensor, " O"]
    output_labels: tuple[str, ...] = ()
    output_side: str = ""
    output_unit: str = ""
    output_token_weights: Callable[[], Float[Tensor, "O T"]] | None = None
    hops: Callable[[], Float[Tensor, "R T"]] | None = None
    levels: Callable[[], SentenceAttention] | None = None
    is_regression: bool = False

    def __post_init__(self) -> None:
        if is_quantized(self.model) or any(w.dtype not in EXACT_DTYPES for w in self.model.parameters()):
            raise InputError("regard looks inside models in float32 only; load this one with precision float32")

    def run(self) -> Float[Tensor, "1 O V"]:
        """Return the logits, or the hidden states of a model without a head."""
        return self.run_layers() if self.head is None else self.head(self.run_layers())

    def explained_outputs(self) -> Float[Tensor, " O"]:
        """Return the numbers that gradients and faithfulness explain."""
        if self.head is None:
            raise InputError("this model returns vectors and makes no prediction to explain")
        outputs = self.run()[0]
        if self.is_regression:
            return outputs[:, 0]
        return outputs.log_softmax(-1).gather(1, self.predicted_ids[:, None])[:, 0]

    def n_layers(self, stack: str) -> int:
        """Return the number of layers of a stack; 0 if the model has no such stack."""
        layers = dict(self.model.named_children()).get(stack)
        return len(layers) if isinstance(layers, nn.ModuleList) else 0

    def attentions(self, kind: str) -> dict[str, InspectableAttention]:
        """Return the attention modules of a kind by name, in layer order; a layer may have none."""
        if kind not in ATTENTION_KINDS:
            raise InputError(f"unknown kind of attention '{kind}'; known: {', '.join(ATTENTION_KINDS)}")
        if not (modules := self._attentions_of_kind(kind)):
            raise InputError(f"this model has no {kind} attention; it has: {', '.join(self.kinds()) or 'none'}")
        return modules

    def kinds(self) -> list[str]:
        """Return the kinds of attention this model has."""
        return [kind for kind in ATTENTION_KINDS if self._attentions_of_kind(kind)]

    def _attentions_of_kind(self, kind: str) -> dict[str, InspectableAttention]:
        names = [
            ATTENTION_KINDS[kind].module_pattern.format(layer)
            for layer in range(self.n_layers(ATTENTION_KINDS[kind].query_side))
        ]
        modules = dict(self.model.named_modules())
        named = {name: modules[name] for name in names if name in modules}
        return {name: module for name, module in named.items() if isinstance(module, InspectableAttention)}
