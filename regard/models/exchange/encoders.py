"""Encoder families, built from the tables of bert.py, roberta.py and distilbert.py.

The class name of a model determines its heads: ``Bert`` + ``ForMaskedLM``.
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
from regard.models.layer_combination import COMBINATION_NAME
from regard.models.span_heads import SpanHead
from regard.text.special_tokens import SpecialTokenTemplate
from regard.text.tokenizer import TokenizerPair

POOLER_MODULES = {"heads.pooler.dense": "pooler.dense"}
POOLER_WEIGHT = "pooler.dense.weight"

BASE_MODEL_SUFFIX = "Model"
"""The suffix of the class of a base model, which has no head."""

HEADS_BY_SUFFIX = {
    BASE_MODEL_SUFFIX: ("pooler",),
    "ForPreTraining": ("masked", "pooler", "next"),
    "ForMaskedLM": ("masked",),
    "ForNextSentencePrediction": ("pooler", "next"),
    "ForSequenceClassification": ("pooler", "label"),
    "ForTokenClassification": ("tags",),
    "ForQuestionAnswering": ("span",),
}
"""The heads of each class, by their names in regard; a base model may lack the pooler."""

CONSTANT_FIELDS = {
    "architecture": "transformer",
    "directions": "both",
    "positions": "learned",
    "norm": "post",
    "embedding": "normed",
}
IGNORED_TENSORS = ("embeddings.position_ids", "embeddings.token_type_ids")


@dataclass(frozen=True, kw_only=True)
class HFEncoderFamily(HFModelFamily):
    """A family of encoders.

    A class name is `class_prefix` and a suffix of `heads_by_suffix`. `layer_modules` are the modules of a layer, under
    `layers_name`; `head_modules` are those of each head. The output embedding of the masked LM head is `decoder_name`
    and its bias `bias_name`. `pooler_activation` is the activation before sequence classification.
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
        return [self.class_prefix + suffix for suffix in self.heads_by_suffix]

    def head_names(self, architecture: str, tensor_names: Container[str]) -> tuple[str, ...]:
        suffix = architecture.removeprefix(self.class_prefix)
        return () if suffix == BASE_MODEL_SUFFIX and POOLER_WEIGHT not in tensor_names else self.heads_by_suffix[suffix]

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        return {**super().config_fields(hf_config, tensor_names), "pooler": self.pooler_activation}

    def architecture_for(self, model: TransformerEncoder) -> str:
        heads = set(model.heads)
        suffixes = [
            suffix
            for suffix, head_names in self.heads_by_suffix.items()
            if set(head_names) == heads or (suffix == BASE_MODEL_SUFFIX and not heads)
        ]
        if not suffixes:
            raise InputError(f"no {self.name} class has exactly these heads: {', '.join(model.heads)}")
        return self.class_prefix + suffixes[0]

    def check_vocabularies(self, model: TransformerEncoder, tokenizers: TokenizerPair) -> None:
        pad_id = SpecialTokenTemplate.from_tokenizer(tokenizers.source).pad_id
        if model.config.first_position not in (0, pad_id + 1):
            problem = f"model.first_position = {model.config.first_position}, but the pad token has the id {pad_id}"
            raise InputError(
                f"{problem}: RoBERTa counts positions from there on, so this model cannot be exported as one"
            )

    def to_hf_config(self, model: TransformerEncoder) -> dict[str, Any]:
        if COMBINATION_NAME in model.heads:
            raise InputError(f'task.layers other than "last": the heads of {self.name} read the last layer only')
        if "pooler" in model.heads:
            pooler = model.heads["pooler"]
            assert isinstance(pooler, Pooler)
            if pooler.pooling.kind != "cls":
                raise InputError(f'task.pooling = "{pooler.pooling.kind}": {self.name} has only "cls" under a head')
            if model.config.pooler != self.pooler_activation:
                raise InputError(
                    f'model.pooler = "{model.config.pooler}": {self.name} has only "{self.pooler_activation}"'
                )
        if "span" in model.heads and not isinstance(model.heads["span"], SpanHead):
            raise InputError(f'task.pooling = "attention": {self.name} has only "none" under a head for questions')
        return super().to_hf_config(model)

    def weight_mappings(self, model: TransformerEncoder) -> list[WeightMapping]:
        heads = [mapping for head in model.heads for mapping in self._head_mappings(model, head)]
        body = list(self._body_mappings(model))
        if "pooler" in model.heads and not any(mapping.name.startswith("heads.pooler") for mapping in heads):
            body += map_modules(POOLER_MODULES)
        return body + heads

    def _body_mappings(self, model: TransformerEncoder) -> Iterator[WeightMapping]:
        tied = "masked" in model.heads and model.config.tied
        for mapping in map_weights(self.embedding_modules):
            tokens = mapping.name == "embedding.tokens.weight"
            yield replace(mapping, tied_names=(f"{self.decoder_name}.weight",)) if tied and tokens else mapping
        yield from map_modules({"embedding.norm": "embeddings.LayerNorm"})
        for i in range(model.config.n_layers):
            yield from map_modules(self.layer_modules, f"encoder.{i}.", f"{self.layers_name}.{i}.")

    def _head_mappings(self, model: TransformerEncoder, head: str) -> Iterator[WeightMapping]:
        for mapping in map_modules(self.head_modules.get(head, {})):
            yield replace(mapping, in_body=False)
        if head == "masked":
            yield from self._masked_lm_mappings(tied=model.config.tied)

    def _masked_lm_mappings(self, *, tied: bool) -> Iterator[WeightMapping]:
        """Yield the bias of the masked LM head, which most files store twice, and its output embedding if untied."""
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
