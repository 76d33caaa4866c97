"""What a family of models of another library is: its names, the keys of its configs, its tensors.

Each family stands in a file of its own and is mostly tables; encoders.py and marian_bart.py say how they are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.errors import CheckpointError, ConfigError
from regard.models.exchange.options import FIXED, Key, Options, fields, table
from regard.models.exchange.tensors import File, Line
from regard.models.presets import TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Family(ABC):
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
    keys: tuple[Key, ...]
    always: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()

    @property
    @abstractmethod
    def architectures(self) -> Iterable[str]:
        """The names of its classes that are read here, the bare body first."""

    @abstractmethod
    def architecture(self, model: Any) -> str:
        """The class of theirs that has just the heads of a model of ours."""

    @abstractmethod
    def lines(self, model: Any) -> list[Line]:
        """The tensors of a model of ours and theirs."""

    def heads(self, architecture: str, names: Container[str]) -> tuple[str, ...]:
        """The heads of ours that a file of theirs holds; `names` are those of its tensors."""
        return ()

    def config(self, options: Options, names: Container[str]) -> TransformerConfig:
        """Our config."""
        options.require({**FIXED, **self.fixed})
        try:
            return self.Config(preset="", **self.fields(options, names))
        except ConfigError as error:
            raise CheckpointError(f"{options.where}: {error}") from None

    def fields(self, options: Options, names: Container[str]) -> dict[str, Any]:
        """The fields of our config."""
        return fields(options, self.keys, self.always)

    def table(self, model: Any) -> dict[str, Any]:
        """Their config: all that does not depend on the vocabulary."""
        return {
            "architectures": [self.architecture(model)],
            "model_type": self.model_type,
            **table(model.config, self.keys, self.always, self.name),
            **self.written,
            "dtype": "float32",
        }

    def fill(self, model: Any, file: File) -> None:
        """Put their tensors into a model of ours: all of them."""
        file.fill(model, self.lines(model))
        file.finish(self.empty, self.unneeded)
