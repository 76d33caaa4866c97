"""The models there are: for each kind of work, by the name of its architecture, a config and what it builds.

A task names its table; recipes name an entry of it (``[model] architecture``). A new family is a line here, its config
and its model, which has the methods of interfaces.py; nothing outside models/ and nn/ knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from regard.errors import ConfigError
from regard.models.config import ModelConfig, TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.recurrent.config import (
    RecurrentEncoderConfig,
    RecurrentLMConfig,
    RecurrentSeq2SeqConfig,
    StaticEncoderConfig,
)
from regard.models.recurrent.encoder import RecurrentEncoder, StaticEncoder
from regard.models.recurrent.language_model import RecurrentLM
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq
from regard.models.seq2seq import TransformerSeq2Seq

DEFAULT_ARCHITECTURE = "transformer"
"""What is built where a recipe does not say."""


class Architecture(NamedTuple):
    """A config, and the model it is of; what else a model takes, all of a table take."""

    Config: type[ModelConfig]
    Model: Callable[..., Any]


Architectures = Mapping[str, Architecture]

SEQ2SEQ_MODELS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerSeq2SeqConfig, TransformerSeq2Seq),
    "rnn": Architecture(RecurrentSeq2SeqConfig, RecurrentSeq2Seq),
}
"""Reads a source and writes a target: `PairModel`, of two vocabularies and whether they are one."""

ENCODER_MODELS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerEncoderConfig, TransformerEncoder),
    "rnn": Architecture(RecurrentEncoderConfig, RecurrentEncoder),
    "static": Architecture(StaticEncoderConfig, StaticEncoder),
}
"""Reads texts and says something of them: `TextModel`, of a vocabulary and heads."""

MASKED_LMS: dict[str, Architecture] = {"transformer": ENCODER_MODELS["transformer"]}
"""Those of them that are pre-trained."""

CAUSAL_LMS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerLMConfig, TransformerLM),
    "rnn": Architecture(RecurrentLMConfig, RecurrentLM),
}
"""Says what comes next: `NextModel`, of a vocabulary."""


def architecture_of(architectures: Architectures, table: Mapping[str, Any], where: str) -> Architecture:
    """The family that a ``[model]`` table names; refuses what belongs to another one."""
    name = table.get("architecture", DEFAULT_ARCHITECTURE)
    if not isinstance(name, str) or name not in architectures:
        raise ConfigError(f"{where}: model.architecture = {name!r}; accepted here: {', '.join(architectures)}")
    own = _field_names(architectures[name].Config)
    for key in table:
        others = [other for other, family in architectures.items() if key in _field_names(family.Config)]
        if key not in own and others:
            raise ConfigError(
                f"{where}: model.{key} belongs to model.architecture = {' or '.join(others)}, not {name}; leave it out"
            )
    return architectures[name]


def _field_names(config: type[ModelConfig]) -> set[str]:
    return {field.name for field in fields(config)}
