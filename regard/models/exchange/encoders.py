"""Families of encoders: one way to put them together from the tables of bert.py, roberta.py and distilbert.py.

The class of a model says which heads it has: ``Bert`` + ``ForMaskedLM``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from regard.errors import InputError
from regard.models.config import TransformerConfig, TransformerEncoderConfig
from regard.models.encoder import TransformerEncoder
from regard.models.exchange.hf_config import HFConfig
from regard.models.exchange.hf_family import HFModelFamily
from regard.models.exchange.weight_mapping import ModuleMapping, WeightMapping, map_modules, map_weights
from regard.models.heads import Pooler

POOLER_MODULES = {"heads.pooler.dense": "pooler.dense"}
POOLER_WEIGHT = "pooler.dense.weight"

BASE_MODEL_SUFFIX = "Model"
"""What follows the stem in the name of a body without a head."""

HEADS_BY_SUFFIX = {
    BASE_MODEL_SUFFIX: ("pooler",),
    "ForPreTraining": ("masked", "pooler", "next"),
    "ForMaskedLM": ("masked",),
    "ForSequenceClassification": ("pooler", "label"),
    "ForTokenClassification": ("tags",),
}
"""The heads of ours that each class has; the pooler of a body may be missing."""

CONSTANT_FIELDS = {"architecture": "transformer", "positions": "learned", "norm": "post", "embedding": "normed"}
IGNORED_TENSORS = ("embeddings.position_ids", "embeddings.token_type_ids")


@dataclass(frozen=True, kw_only=True)
class HFEncoderFamily(HFModelFamily):
    """A family of encoders.

    `stem` begins the names of its classes and `endings` are those that are read here. `layer` is a layer under the
    name `layers`, `tops` are the modules of each head; the words of a masked-word head are those of the module
    `decoder`, but for its bias where that has a name of its own. `pooler` is the activation before a head of texts.
    """

    Config: ClassVar[type[TransformerConfig]] = TransformerEncoderConfig

    class_prefix: str
    heads_by_suffix: Mapping[str, tuple[str, ...]]
    embedding_modules: ModuleMapping
    layers_name: str
    layer_modules: ModuleMapping
    head_modules: Mapping[str, ModuleMapping]
    decoder_name: str
    bias_name: str
    pooler_activation: str = "tanh"

    @property
    def architectures(self) -> Iterable[str]:
        return [self.class_prefix + ending for ending in self.heads_by_suffix]

    def head_names(self, architecture: str, tensor_names: Container[str]) -> tuple[str, ...]:
        ending = architecture.removeprefix(self.class_prefix)
        return () if ending == BASE_MODEL_SUFFIX and POOLER_WEIGHT not in tensor_names else self.heads_by_suffix[ending]

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        return {**super().config_fields(hf_config, tensor_names), "pooler": self.pooler_activation}

    def architecture_for(self, model: TransformerEncoder) -> str:
        heads = set(model.heads)
        fitting = [
            ending
            for ending, has in self.heads_by_suffix.items()
            if set(has) == heads or (ending == BASE_MODEL_SUFFIX and not heads)
        ]
        if not fitting:
            raise InputError(f"no {self.name} has just these heads: {', '.join(model.heads)}")
        return self.class_prefix + fitting[0]

    def to_hf_config(self, model: TransformerEncoder) -> dict[str, Any]:
        if "pooler" in model.heads:
            pooler = model.heads["pooler"]
            assert isinstance(pooler, Pooler)
            if pooler.pooling.kind != "cls":
                raise InputError(f'task.pooling = "{pooler.pooling.kind}": {self.name} has only "cls" under a head')
            if model.config.pooler != self.pooler_activation:
                raise InputError(
                    f'model.pooler = "{model.config.pooler}": {self.name} has only "{self.pooler_activation}"'
                )
        return super().to_hf_config(model)

    def weight_mappings(self, model: TransformerEncoder) -> list[WeightMapping]:
        top = [line for head in model.heads for line in self._head_mappings(model, head)]
        lines = list(self._body_mappings(model))
        if "pooler" in model.heads and not any(line.name.startswith("heads.pooler") for line in top):
            lines += map_modules(POOLER_MODULES)
        return lines + top

    def _body_mappings(self, model: TransformerEncoder) -> Iterator[WeightMapping]:
        tied = "masked" in model.heads and model.config.tied
        for line in map_weights(self.embedding_modules):
            tokens = line.name == "embedding.tokens.weight"
            yield replace(line, tied_names=(f"{self.decoder_name}.weight",)) if tied and tokens else line
        yield from map_modules({"embedding.norm": "embeddings.LayerNorm"})
        for i in range(model.config.n_layers):
            yield from map_modules(self.layer_modules, f"encoder.{i}.", f"{self.layers_name}.{i}.")

    def _head_mappings(self, model: TransformerEncoder, head: str) -> Iterator[WeightMapping]:
        for line in map_modules(self.head_modules.get(head, {})):
            yield replace(line, in_body=False)
        if head == "masked":
            yield from self._masked_lm_mappings(tied=model.config.tied)

    def _masked_lm_mappings(self, *, tied: bool) -> Iterator[WeightMapping]:
        """The bias of a masked-word head, which has two names in most files, and its vectors where they are its own."""
        name = f"{self.decoder_name}.bias"
        if tied:
            yield WeightMapping(
                "heads.masked.bias",
                (self.bias_name,),
                tied_names=(name,) if name != self.bias_name else (),
                in_body=False,
            )
        else:
            yield WeightMapping(
                "heads.masked.bias",
                (name,),
                legacy_names=(self.bias_name,) if name != self.bias_name else (),
                in_body=False,
            )
            yield WeightMapping("heads.masked.output_embedding.weight", (f"{self.decoder_name}.weight",), in_body=False)
