"""What a family of models of another library is: its names, the keys of its configs, its tensors.

Each family stands in a file of its own and is mostly tables; encoders.py and marian_bart.py say how they are used.
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


@dataclass(frozen=True, kw_only=True)
class HFModelFamily(ABC):
    """One family.

    `keys` become fields of our config and `always` are those fields that have one value in all of the family;
    `fixed` are keys that must have one value, `written` further keys of the configs we write. The tensors of the body
    have a `prefix` wherever there is a head. `empty` are patterns of stored tensors that hold nothing, `unneeded` of
    those that some architectures store without using them.
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
        """The names of its classes that are read here, the bare body first."""

    @abstractmethod
    def architecture_for(self, model: Any) -> str:
        """The class of theirs that has just the heads of a model of ours."""

    @abstractmethod
    def weight_mappings(self, model: Any) -> list[WeightMapping]:
        """The tensors of a model of ours and theirs."""

    def head_names(self, architecture: str, tensor_names: Container[str]) -> tuple[str, ...]:
        """The heads of ours that a file of theirs holds; `names` are those of its tensors."""
        return ()

    def from_hf_config(self, hf_config: HFConfig, tensor_names: Container[str]) -> TransformerConfig:
        """Our config."""
        hf_config.require_values({**REQUIRED_VALUES, **self.required_values})
        try:
            return self.Config(preset="", **self.config_fields(hf_config, tensor_names))
        except ConfigError as error:
            raise CheckpointError(f"{hf_config.path}: {error}") from None

    def config_fields(self, hf_config: HFConfig, tensor_names: Container[str]) -> dict[str, Any]:
        """The fields of our config."""
        return fields_from_hf(hf_config, self.config_keys, self.constant_fields)

    def to_hf_config(self, model: Any) -> dict[str, Any]:
        """Their config: all that does not depend on the vocabulary."""
        return {
            "architectures": [self.architecture_for(model)],
            "model_type": self.model_type,
            **values_to_hf(model.config, self.config_keys, self.constant_fields, self.name),
            **self.extra_config_values,
            "dtype": "float32",
        }

    def load_weights(self, model: Any, weights: HFWeights) -> None:
        """Put their tensors into a model of ours: all of them."""
        weights.load_into(model, self.weight_mappings(model))
        weights.check_unused(self.ignored_tensors, self.unused_tensors)
