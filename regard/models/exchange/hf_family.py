"""The interface of a Hugging Face model family: its class names, config keys and tensors.

Each family has a file of its own and is mostly tables; encoders.py and marian_bart.py implement their use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.errors import CheckpointError, ConfigError
from regard.models.config import TransformerConfig
from regard.models.exchange.hf_config import REQUIRED_VALUES, ConfigKey, HFConfig, fields_from_hf, values_to_hf
from regard.models.exchange.weight_mapping import HFWeights, WeightMapping
from regard.text.tokenizer import TokenizerPair


@dataclass(frozen=True, kw_only=True)
class HFModelFamily(ABC):
    """One family.

    `config_keys` become fields of the config, and `constant_fields` have one value in the whole family;
    `required_values` must hold in an imported config.json, and `extra_config_values` are added to an exported one. The
    tensors of the base model have a `prefix` in models with a head. `ignored_tensors` are patterns of tensors that hold
    no weights, `unused_tensors` of weights that some architectures store without using them.
    """

    Config: ClassVar[type[TransformerConfig]]

    name: str
    model_type: str
    prefix: str
    config_keys: tuple[ConfigKey, ...]
    constant_fields: Mapping[str, Any]
    required_values: Mapping[str, Any] = field(default_factory=dict)
    extra_config_values: Mapping[str, Any] = field(default_factory=dict)
    ignored_tensors: tuple[str, ...] = ()
    unused_tensors: tuple[str, ...] = ()

    @property
    @abstractmethod
    def architectures(self) -> Iterable[str]:
        """The supported class names, the base model first."""

    @abstractmethod
    def architecture_for(self, model: Any) -> str:
        """Return the class name that has exactly the heads of the model."""

    @abstractmethod
    def weight_mappings(self, model: Any) -> list[WeightMapping]:
        """Return the mapping of each weight of the model to its Hugging Face tensors."""

    def head_names(self, architecture: str, tensor_names: Container[str]) -> tuple[str, ...]:
        """Return the names of the heads that a file with these tensors holds."""
        return ()

    def from_hf_config(self, hf_config: HFConfig, tensor_names: Container[str]) -> TransformerConfig:
        """Return the config of the model."""
        hf_config.require_values({**REQUIRED_VALUES, **self.required_values})
        try:
            return self.Config(preset="", **self.config_fields(hf_config, tensor_names))
        except ConfigError as error:
            raise CheckpointError(f"{hf_config.path}: {error}") from None

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        """Return the fields of the config."""
        return fields_from_hf(hf_config, self.config_keys, self.constant_fields)

    def to_hf_config(self, model: Any) -> dict[str, Any]:
        """Return the values of config.json that do not depend on the vocabulary."""
        return {
            "architectures": [self.architecture_for(model)],
            "model_type": self.model_type,
            **values_to_hf(model.config, self.config_keys, self.constant_fields, self.name),
            **self.extra_config_values,
            "dtype": "float32",
        }

    def check_vocabularies(self, model: Any, tokenizers: TokenizerPair) -> None:
        """Refuse vocabularies that the family cannot express for this model."""
        return

    def check_weights(self, model: Any, weights: HFWeights) -> None:
        """Refuse tensors that are not those of a model, which may be one without memory for its weights."""
        for _ in weights.match_tensors(model, self.weight_mappings(model)):
            pass

    def load_weights(self, model: Any, weights: HFWeights) -> None:
        """Load all tensors into a model; tensors left over are refused."""
        weights.load_into(model, self.weight_mappings(model))
        weights.check_unused(self.ignored_tensors, self.unused_tensors)
