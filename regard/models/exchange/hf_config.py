"""Keys of Hugging Face's config.json and fields of regard's configs: one table for both directions.

A key without a field must have the one value that regard's models have built in; any other value is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from regard.errors import CheckpointError, InputError
from regard.models.config import SINUSOID_BASE, TransformerConfig
from regard.text.json_values import show_json

HF_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Activation names of transformers and of regard; of several names, the first is exported."""

REQUIRED_VALUES: dict[str, Any] = {
    "quantization_config": None,
    "pruned_heads": {},
    "is_decoder": False,
    "add_cross_attention": False,
}
"""Values that every imported config must have, unless it leaves the key out."""


@dataclass(frozen=True)
class HFConfig:
    """The values of a config.json, and its path."""

    path: Path
    values: Mapping[str, Any]

    def get(self, key: str, default: Any) -> Any:
        """Return the value of a key, which must have the type of the default; the default if it is missing or null."""
        value = self.values.get(key)
        if value is None:
            return default
        fits = isinstance(value, type(default)) or (isinstance(default, float) and isinstance(value, int))
        if default is not None and (not fits or isinstance(value, bool) != isinstance(default, bool)):
            self.refuse(key, f"as in {json.dumps(default)}", value)
        return value

    def require_values(self, expected: Mapping[str, Any]) -> None:
        """Refuse a key whose value is not the expected one; missing keys and null are accepted."""
        for key, expected_value in expected.items():
            value = self.values.get(key)
            if value is not None and value != expected_value:
                self.refuse(key, "none" if expected_value is None else json.dumps(expected_value), value)

    def refuse(self, key: str, expected: str, actual: Any) -> NoReturn:
        raise CheckpointError(f"{self.path}: {key}: expected {expected}, found {show_json(actual)}")


@dataclass(frozen=True)
class ConfigKey:
    """A key of config.json with its default in transformers, and the config field it becomes."""

    hf_key: str
    field_name: str
    default: Any
    from_hf: Callable[[Any, HFConfig], Any] = lambda value, _: value
    to_hf: Callable[[Any, TransformerConfig], Any] = lambda value, _: value


def choice_key(hf_key: str, field_name: str, default: Any, names: Mapping[Any, str]) -> ConfigKey:
    """Return a key with a fixed set of values, each of which has a name in regard."""

    def from_hf(value: Any, hf_config: HFConfig) -> str:
        if not isinstance(value, Hashable) or value not in names:
            hf_config.refuse(hf_key, f"one of {', '.join(json.dumps(name) for name in names)}", value)
        return names[value]

    def to_hf(value: str, _: TransformerConfig) -> Any:
        return next((hf_value for hf_value, name in names.items() if name == value), None)

    return ConfigKey(hf_key, field_name, default, from_hf, to_hf)


def fields_from_hf(
    hf_config: HFConfig, keys: Iterable[ConfigKey], constant_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a config; two keys that become one field must agree."""
    fields = dict(constant_fields)
    source: dict[str, ConfigKey] = {}
    for key in keys:
        value = key.from_hf(hf_config.get(key.hf_key, key.default), hf_config)
        first = source.setdefault(key.field_name, key)
        if first is not key and value != fields[key.field_name]:
            hf_config.refuse(key.hf_key, f"{json.dumps(fields[key.field_name])}, as in {first.hf_key}", value)
        fields[key.field_name] = value
    return fields


def values_to_hf(
    config: TransformerConfig, keys: Iterable[ConfigKey], constant_fields: Mapping[str, Any], family: str
) -> dict[str, Any]:
    """Return the values of a config.json; a field whose value has no equivalent is refused."""
    for name, constant in constant_fields.items():
        if getattr(config, name) != constant:
            raise _no_equivalent_error(name, config, family, f"only {json.dumps(constant)}")
    _check_built_in_values(config, family)
    values = {}
    for key in keys:
        values[key.hf_key] = value = key.to_hf(getattr(config, key.field_name), config)
        if value is None:
            raise _no_equivalent_error(key.field_name, config, family, "no such value")
    return values


def _check_built_in_values(config: TransformerConfig, family: str) -> None:
    """Refuse widths of heads and a base of sinusoids that no family can express."""
    for name, width in (("d_key", config.key_width), ("d_value", config.value_width)):
        if width * config.n_heads != config.d_model:
            raise _no_equivalent_error(
                name, config, family, f"only d_model / n_heads = {config.d_model} / {config.n_heads}"
            )
    if config.has_sinusoids and config.sinusoid_base != SINUSOID_BASE:
        raise _no_equivalent_error("sinusoid_base", config, family, f"only {json.dumps(SINUSOID_BASE)}")


def _no_equivalent_error(name: str, config: TransformerConfig, family: str, supported: str) -> InputError:
    value = json.dumps(getattr(config, name))
    return InputError(f"model.{name} = {value}: {family} has {supported}, so this model cannot be exported as one")
