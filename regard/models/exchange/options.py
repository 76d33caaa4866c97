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
from regard.models.presets import TransformerConfig

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their names and ours; of several the first is written."""

FIXED: dict[str, Any] = {
    "quantization_config": None,
    "pruned_heads": {},
    "is_decoder": False,
    "add_cross_attention": False,
}
"""What no model that is read here may have otherwise."""


@dataclass(frozen=True)
class Options:
    """A config.json and where it lies."""

    where: Path
    table: Mapping[str, Any]

    def value(self, key: str, default: Any) -> Any:
        """The value of a key, of the same type as their default, which stands where it is left out or null."""
        found = self.table.get(key)
        if found is None:
            return default
        fits = isinstance(found, type(default)) or (isinstance(default, float) and isinstance(found, int))
        if default is not None and (not fits or isinstance(found, bool) != isinstance(default, bool)):
            self.refuse(key, f"as in {json.dumps(default)}", found)
        return found

    def require(self, fixed: Mapping[str, Any]) -> None:
        """Refuse keys that are there with another value than this one."""
        for key, wanted in fixed.items():
            found = self.table.get(key)
            if found is not None and found != wanted:
                self.refuse(key, "none" if wanted is None else json.dumps(wanted), found)

    def refuse(self, key: str, expected: str, found: Any) -> NoReturn:
        raise CheckpointError(f"{self.where}: {key}: expected {expected}, found {json.dumps(found)}")


@dataclass(frozen=True)
class Key:
    """A key of theirs with their default, and the field of ours it becomes."""

    theirs: str
    ours: str
    default: Any
    into: Callable[[Any, Options], Any] = lambda value, _: value
    back: Callable[[Any, TransformerConfig], Any] = lambda value, _: value


def choice(theirs: str, ours: str, default: Any, names: Mapping[Any, str]) -> Key:
    """A key with a few values, each of which has a name here."""

    def into(value: Any, options: Options) -> str:
        if value not in names:
            options.refuse(theirs, f"one of {', '.join(json.dumps(name) for name in names)}", value)
        return names[value]

    def back(value: str, _: TransformerConfig) -> Any:
        return next((name for name, own in names.items() if own == value), None)

    return Key(theirs, ours, default, into, back)


def fields(options: Options, keys: Iterable[Key], always: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of our config; two keys that become one field must agree."""
    found = dict(always)
    source: dict[str, Key] = {}
    for key in keys:
        value = key.into(options.value(key.theirs, key.default), options)
        first = source.setdefault(key.ours, key)
        if first is not key and value != found[key.ours]:
            options.refuse(key.theirs, f"{json.dumps(found[key.ours])}, as in {first.theirs}", value)
        found[key.ours] = value
    return found


def table(config: TransformerConfig, keys: Iterable[Key], always: Mapping[str, Any], family: str) -> dict[str, Any]:
    """The keys of their config; a field with a value they cannot have is refused."""
    for name, wanted in always.items():
        if getattr(config, name) != wanted:
            raise _unequalled(name, config, family, f"only {json.dumps(wanted)}")
    found = {}
    for key in keys:
        found[key.theirs] = value = key.back(getattr(config, key.ours), config)
        if value is None:
            raise _unequalled(key.ours, config, family, "no such value")
    return found


def _unequalled(name: str, config: TransformerConfig, family: str, there: str) -> InputError:
    own = json.dumps(getattr(config, name))
    return InputError(f"model.{name} = {own}: {family} has {there}, so this model cannot be exported as one")
