"""The models there are: for each kind of work, by the name of its architecture, a config and what it builds.

A task names its table; recipes name an entry of it (``[model] architecture``). A new family is a line here, its config
and its model, which has the methods of interfaces.py; nothing outside models/ and nn/ knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from regard.errors import ConfigError
from regard.models.encoder import TextEncoder
from regard.models.language_model import LanguageModel
from regard.models.presets import EncoderConfig, LanguageModelConfig, ModelConfig, Seq2SeqConfig
from regard.models.recurrent.config import RecurrentNextConfig, RecurrentPairConfig, RecurrentTextConfig, StaticConfig
from regard.models.recurrent.encoder import RecurrentTextEncoder, StaticEncoder
from regard.models.recurrent.language_model import RecurrentLanguageModel
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq
from regard.models.seq2seq import Seq2Seq

USUAL = "transformer"
"""What is built where a recipe does not say."""


class Family(NamedTuple):
    """A config, and the model it is of; what else a model takes, all of a table take."""

    Config: type[ModelConfig]
    Model: Callable[..., Any]


Families = Mapping[str, Family]

PAIRS: dict[str, Family] = {
    "transformer": Family(Seq2SeqConfig, Seq2Seq),
    "rnn": Family(RecurrentPairConfig, RecurrentSeq2Seq),
}
"""Reads a source and writes a target: `PairModel`, of two vocabularies and whether they are one."""

TEXTS: dict[str, Family] = {
    "transformer": Family(EncoderConfig, TextEncoder),
    "rnn": Family(RecurrentTextConfig, RecurrentTextEncoder),
    "static": Family(StaticConfig, StaticEncoder),
}
"""Reads texts and says something of them: `TextModel`, of a vocabulary and heads."""

MASKED: dict[str, Family] = {"transformer": TEXTS["transformer"]}
"""Those of them that are pre-trained."""

NEXT: dict[str, Family] = {
    "transformer": Family(LanguageModelConfig, LanguageModel),
    "rnn": Family(RecurrentNextConfig, RecurrentLanguageModel),
}
"""Says what comes next: `NextModel`, of a vocabulary."""


def family_of(families: Families, table: Mapping[str, Any], where: str) -> Family:
    """The family that a ``[model]`` table names; refuses what belongs to another one."""
    name = table.get("architecture", USUAL)
    if not isinstance(name, str) or name not in families:
        raise ConfigError(f"{where}: model.architecture = {name!r}; accepted here: {', '.join(families)}")
    own = _keys(families[name].Config)
    for key in table:
        others = [other for other, family in families.items() if key in _keys(family.Config)]
        if key not in own and others:
            raise ConfigError(
                f"{where}: model.{key} belongs to model.architecture = {' or '.join(others)}, not {name}; leave it out"
            )
    return families[name]


def _keys(config: type[ModelConfig]) -> set[str]:
    return {field.name for field in fields(config)}
