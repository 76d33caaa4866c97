"""Keys of their config.json and fields of our configs: one table for both directions.

What has no field here must have the one value that our models have built in; anything else is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from regard.errors import CheckpointError, InputError
from regard.models.config import TransformerConfig

HF_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their names and ours; of several the first is written."""

REQUIRED_VALUES: dict[str, Any] = {
    "quantization_config": None,
    "pruned_heads": {},
    "is_decoder": False,
    "add_cross_attention": False,
}
"""What no model that is read here may have otherwise."""


@dataclass(frozen=True)
class HFConfig:
    """A config.json and where it lies."""

    path: Path
    values: Mapping[str, Any]

    def get(self, key: str, default: Any) -> Any:
        """The value of a key, of the same type as their default, which stands where it is left out or null."""
        found = self.values.get(key)
        if found is None:
            return default
        fits = isinstance(found, type(default)) or (isinstance(default, float) and isinstance(found, int))
        if default is not None and (not fits or isinstance(found, bool) != isinstance(default, bool)):
            self.refuse(key, f"as in {json.dumps(default)}", found)
        return found

    def require_values(self, expected: Mapping[str, Any]) -> None:
        """Refuse keys that are there with another value than this one."""
        for key, wanted in expected.items():
            found = self.values.get(key)
            if found is not None and found != wanted:
                self.refuse(key, "none" if wanted is None else json.dumps(wanted), found)

    def refuse(self, key: str, expected: str, found: Any) -> NoReturn:
        raise CheckpointError(f"{self.path}: {key}: expected {expected}, found {json.dumps(found)}")


@dataclass(frozen=True)
class ConfigKey:
    """A key of theirs with their default, and the field of ours it becomes."""

    hf_key: str
    field_name: str
    default: Any
    from_hf: Callable[[Any, HFConfig], Any] = lambda value, _: value
    to_hf: Callable[[Any, TransformerConfig], Any] = lambda value, _: value


def choice_key(hf_key: str, field_name: str, default: Any, names: Mapping[Any, str]) -> ConfigKey:
    """A key with a few values, each of which has a name here."""

    def into(value: Any, options: HFConfig) -> str:
        if value not in names:
            options.refuse(hf_key, f"one of {', '.join(json.dumps(name) for name in names)}", value)
        return names[value]

    def back(value: str, _: TransformerConfig) -> Any:
        return next((name for name, own in names.items() if own == value), None)

    return ConfigKey(hf_key, field_name, default, into, back)


def fields_from_hf(
    hf_config: HFConfig, keys: Iterable[ConfigKey], constant_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of our config; two keys that become one field must agree."""
    found = dict(constant_fields)
    source: dict[str, ConfigKey] = {}
    for key in keys:
        value = key.from_hf(hf_config.get(key.hf_key, key.default), hf_config)
        first = source.setdefault(key.field_name, key)
        if first is not key and value != found[key.field_name]:
            hf_config.refuse(key.hf_key, f"{json.dumps(found[key.field_name])}, as in {first.hf_key}", value)
        found[key.field_name] = value
    return found


def values_to_hf(
    config: TransformerConfig, keys: Iterable[ConfigKey], constant_fields: Mapping[str, Any], family: str
) -> dict[str, Any]:
    """The keys of their config; a field with a value they cannot have is refused."""
    for name, wanted in constant_fields.items():
        if getattr(config, name) != wanted:
            raise _no_equivalent_error(name, config, family, f"only {json.dumps(wanted)}")
    found = {}
    for key in keys:
        found[key.hf_key] = value = key.to_hf(getattr(config, key.field_name), config)
        if value is None:
            raise _no_equivalent_error(key.field_name, config, family, "no such value")
    return found


def _no_equivalent_error(name: str, config: TransformerConfig, family: str, supported: str) -> InputError:
    own = json.dumps(getattr(config, name))
    return InputError(f"model.{name} = {own}: {family} has {supported}, so this model cannot be exported as one")
