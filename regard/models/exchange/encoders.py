"""Families of encoders: one way to put them together from the tables of bert.py, roberta.py and distilbert.py.

The class of a model says which heads it has: ``Bert`` + ``ForMaskedLM``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from regard.errors import InputError
from regard.models.encoder import TextEncoder
from regard.models.exchange.family import Family
from regard.models.exchange.options import Options
from regard.models.exchange.tensors import Line, Table, modules, weights
from regard.models.heads import Pooler
from regard.models.presets import EncoderConfig, TransformerConfig

POOLER = {"heads.pooler.dense": "pooler.dense"}
POOLED = "pooler.dense.weight"

BARE = "Model"
"""What follows the stem in the name of a body without a head."""

HEADS = {
    BARE: ("pooler",),
    "ForPreTraining": ("masked", "pooler", "next"),
    "ForMaskedLM": ("masked",),
    "ForSequenceClassification": ("pooler", "label"),
    "ForTokenClassification": ("tags",),
}
"""The heads of ours that each class has; the pooler of a body may be missing."""

ALWAYS = {"architecture": "transformer", "positions": "learned", "norm": "post", "embedding": "normed"}
EMPTY = ("embeddings.position_ids", "embeddings.token_type_ids")


@dataclass(frozen=True, kw_only=True)
class EncoderFamily(Family):
    """A family of encoders.

    `stem` begins the names of its classes and `endings` are those that are read here. `layer` is a layer under the
    name `layers`, `tops` are the modules of each head; the words of a masked-word head are those of the module
    `decoder`, but for its bias where that has a name of its own. `pooler` is the activation before a head of texts.
    """

    Config: ClassVar[type[TransformerConfig]] = EncoderConfig

    stem: str
    endings: Mapping[str, tuple[str, ...]]
    embedding: Table
    layers: str
    layer: Table
    tops: Mapping[str, Table]
    decoder: str
    bias: str
    pooler: str = "tanh"

    @property
    def architectures(self) -> Iterable[str]:
        return [self.stem + ending for ending in self.endings]

    def heads(self, architecture: str, names: Container[str]) -> tuple[str, ...]:
        ending = architecture.removeprefix(self.stem)
        return () if ending == BARE and POOLED not in names else self.endings[ending]

    def fields(self, options: Options, names: Container[str]) -> dict[str, Any]:
        return {**super().fields(options, names), "pooler": self.pooler}

    def architecture(self, model: TextEncoder) -> str:
        heads = set(model.heads)
        fitting = [
            ending for ending, has in self.endings.items() if set(has) == heads or (ending == BARE and not heads)
        ]
        if not fitting:
            raise InputError(f"no {self.name} has just these heads: {', '.join(model.heads)}")
        return self.stem + fitting[0]

    def table(self, model: TextEncoder) -> dict[str, Any]:
        if "pooler" in model.heads:
            pooler = model.heads["pooler"]
            assert isinstance(pooler, Pooler)
            if pooler.pooling.kind != "cls":
                raise InputError(f'task.pooling = "{pooler.pooling.kind}": {self.name} has only "cls" under a head')
            if model.config.pooler != self.pooler:
                raise InputError(f'model.pooler = "{model.config.pooler}": {self.name} has only "{self.pooler}"')
        return super().table(model)

    def lines(self, model: TextEncoder) -> list[Line]:
        top = [line for head in model.heads for line in self._top(model, head)]
        lines = list(self._body(model))
        if "pooler" in model.heads and not any(line.ours.startswith("heads.pooler") for line in top):
            lines += modules(POOLER)
        return lines + top

    def _body(self, model: TextEncoder) -> Iterator[Line]:
        tied = "masked" in model.heads and model.config.tied
        for line in weights(self.embedding):
            tokens = line.ours == "embedding.tokens.weight"
            yield replace(line, copies=(f"{self.decoder}.weight",)) if tied and tokens else line
        yield from modules({"embedding.norm": "embeddings.LayerNorm"})
        for i in range(model.config.n_layers):
            yield from modules(self.layer, f"encoder.{i}.", f"{self.layers}.{i}.")

    def _top(self, model: TextEncoder, head: str) -> Iterator[Line]:
        for line in modules(self.tops.get(head, {})):
            yield replace(line, body=False)
        if head == "masked":
            yield from self._words(tied=model.config.tied)

    def _words(self, *, tied: bool) -> Iterator[Line]:
        """The bias of a masked-word head, which has two names in most files, and its vectors where they are its own."""
        name = f"{self.decoder}.bias"
        if tied:
            yield Line("heads.masked.bias", (self.bias,), copies=(name,) if name != self.bias else (), body=False)
        else:
            yield Line("heads.masked.bias", (name,), older=(self.bias,) if name != self.bias else (), body=False)
            yield Line("heads.masked.words.weight", (f"{self.decoder}.weight",), body=False)
