"""Tables of the available architectures: for each kind of model, a config and a model class by name.

A task names its table; a recipe names an entry of it (``[model] architecture``). A new architecture is a config, a
model that implements an interface of interfaces.py, and a line here; nothing outside models/ and nn/ depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from regard.errors import ConfigError
from regard.models.config import ModelConfig, TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.models.encoder import TransformerEncoder
from regard.models.language_model import TransformerLM
from regard.models.recurrent.bilm import BiLMEncoder
from regard.models.recurrent.config import (
    BiLMConfig,
    RecurrentEncoderConfig,
    RecurrentLMConfig,
    RecurrentSeq2SeqConfig,
    StaticEncoderConfig,
)
from regard.models.recurrent.encoder import RecurrentEncoder, StaticEncoder
from regard.models.recurrent.language_model import RecurrentLM
from regard.models.recurrent.seq2seq import RecurrentSeq2Seq
from regard.models.seq2seq import TransformerSeq2Seq
from regard.models.skip_gram import SkipGramConfig, SkipGramModel

DEFAULT_ARCHITECTURE = "transformer"
"""The architecture of a recipe that names none, if the task has it; else the first of the task's."""


class Architecture(NamedTuple):
    """A config class and its model class; all models of a table take the same further arguments."""

    Config: type[ModelConfig]
    Model: Callable[..., Any]


Architectures = Mapping[str, Architecture]

SEQ2SEQ_MODELS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerSeq2SeqConfig, TransformerSeq2Seq),
    "rnn": Architecture(RecurrentSeq2SeqConfig, RecurrentSeq2Seq),
}
"""`Seq2SeqModel`s, built from the sizes of two vocabularies and whether they are one."""

ENCODER_MODELS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerEncoderConfig, TransformerEncoder),
    "rnn": Architecture(RecurrentEncoderConfig, RecurrentEncoder),
    "static": Architecture(StaticEncoderConfig, StaticEncoder),
    "bilm": Architecture(BiLMConfig, BiLMEncoder),
}
"""`EncoderModel`s, built from the size of the vocabulary and heads."""

MASKED_LMS: dict[str, Architecture] = {"transformer": ENCODER_MODELS["transformer"]}
"""The `EncoderModel`s that can be pretrained by masked language modelling."""

CAUSAL_LMS: dict[str, Architecture] = {
    "transformer": Architecture(TransformerLMConfig, TransformerLM),
    "rnn": Architecture(RecurrentLMConfig, RecurrentLM),
}
"""`CausalLM`s, built from the size of the vocabulary."""

WORD_VECTOR_MODELS: dict[str, Architecture] = {"skip-gram": Architecture(SkipGramConfig, SkipGramModel)}
"""Models of word vectors, built from the size of the vocabulary."""


def architecture_of(architectures: Architectures, table: Mapping[str, Any], where: str) -> Architecture:
    """Return the architecture that a ``[model]`` table names; keys of another architecture are refused."""
    default = DEFAULT_ARCHITECTURE if DEFAULT_ARCHITECTURE in architectures else next(iter(architectures))
    name = table.get("architecture", default)
    if not isinstance(name, str) or name not in architectures:
        raise ConfigError(f"{where}: model.architecture = {name!r}; accepted here: {', '.join(architectures)}")
    known_keys = _field_names(architectures[name].Config)
    for key in table:
        others = [other for other, entry in architectures.items() if key in _field_names(entry.Config)]
        if key not in known_keys and others:
            raise ConfigError(
                f"{where}: model.{key} belongs to model.architecture = {' or '.join(others)}, not {name}; leave it out"
            )
    return architectures[name]


def _field_names(config: type[ModelConfig]) -> set[str]:
    return {field.name for field in fields(config)}
