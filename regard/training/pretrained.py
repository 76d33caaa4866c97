"""The model that training starts from: its vocabulary, its shape and its weights (SPEC 6.1).

The body must fit whole. Of the heads those that both models have in one shape go along; the report counts the
tensors that were loaded, that are new, and that the new model has no use for. Called by prepare.py when a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard import config
from regard.errors import ConfigError
from regard.models.config import ModelConfig
from regard.models.weights import collect_weights
from regard.progress import print_message
from regard.runs.model_loading import open_model
from regard.tasks import Task
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig

OVERRIDABLE_MODEL_KEYS = ("start", "dropout")
"""Keys of ``[model]`` that need not be those of the model it starts from."""

FINE_TUNING_DROPOUT = 0.1
"""Where the model was trained without, for it had text enough; what comes after has less."""

HEAD_PREFIX = "heads."


class WeightLoadingReport(NamedTuple):
    """Names of tensors: taken over, drawn anew, left behind."""

    loaded: list[str]
    newly_initialised: list[str]
    unused: list[str]

    def __str__(self) -> str:
        def named(names: list[str]) -> str:
            return f"{len(names)}" + (f" ({', '.join(names)})" if names else "")

        return f"{len(self.loaded)} tensors loaded, new: {named(self.newly_initialised)}, unused: {named(self.unused)}"


@dataclass(frozen=True)
class PretrainedModel:
    """A trained model to start from."""

    path: str
    tokenizer: Tokenizer
    tokenizer_config: TokenizerConfig
    model_config: ModelConfig
    task_table: Mapping[str, Any]
    weights: Mapping[str, Tensor]

    def set_architecture(self, tables: config.Tables) -> config.Tables:
        """The recipe with the architecture of this model, where it names none."""
        return {**tables, "model": {"architecture": self.model_config.architecture, **tables["model"]}}

    def complete_recipe(self, recipe_tables: config.Tables, where: str) -> config.Tables:
        """The recipe with the shape and the vocabulary of this model; it may not ask for others.

        But texts may be longer than those it was made for, where it has no weights for positions.
        """
        shape = {**config.to_tables({"model": self.model_config})["model"], "start": self.path}
        shape["dropout"] = shape["dropout"] or FINE_TUNING_DROPOUT
        asked = recipe_tables["task"].get("length", 0)
        self._check_length(asked, where)
        shape["n_positions"] = max(shape["n_positions"], asked)
        for key, value in recipe_tables["model"].items():
            if key not in OVERRIDABLE_MODEL_KEYS and value != shape.get(key):
                raise ConfigError(
                    f"{where}: model.{key} = {value!r}, but {self.path} has {shape.get(key)!r}; leave it out"
                )
        vocabulary = config.to_tables({"tokenizer": self.tokenizer_config})["tokenizer"]
        for key, value in recipe_tables["tokenizer"].items():
            if value != vocabulary[key]:
                raise ConfigError(f"{where}: tokenizer.{key}: the vocabulary is that of {self.path}; leave it out")
        task = {**self.task_table, **recipe_tables["task"]}
        return {**recipe_tables, "model": {**shape, **recipe_tables["model"]}, "task": task, "tokenizer": vocabulary}

    def _check_length(self, requested_length: int, where: str) -> None:
        """Refuse texts longer than the positions that the model has vectors for."""
        most = self.model_config.n_positions
        if self.model_config.is_length_limited and requested_length > most:
            raise ConfigError(
                f"{where}: task.length = {requested_length}, but {self.path} has learned {most} positions; "
                f"give task.length={most} or less, or leave it out"
            )

    def load_weights_into(self, model: nn.Module) -> WeightLoadingReport:
        """Put the weights into a model, and say what became of them."""
        wanted = dict(model.named_parameters())
        fitting = [name for name, weight in wanted.items() if name in self.weights]
        fitting = [name for name in fitting if self.weights[name].shape == wanted[name].shape]
        new = [name for name in wanted if name not in fitting]
        for name in new:
            if not name.startswith(HEAD_PREFIX):
                raise _unusable_pretrained_error(f"{self.path}: lacks the tensor '{name}' in the shape of this model")
        with torch.no_grad():
            for name in fitting:
                wanted[name].copy_(self.weights[name])
        report = WeightLoadingReport(fitting, new, [name for name in self.weights if name not in fitting])
        print_message(f"{self.path}: {report}")
        return report


def load_pretrained(model_table: Mapping[str, Any], task_class: type[Task]) -> PretrainedModel:
    """The model that a ``[model]`` table names."""
    settings, found, model = open_model(Path(model_table["start"]))
    if type(settings.model) not in [family.Config for family in task_class.architectures.values()]:
        raise _unusable_pretrained_error(
            f"{model_table['start']}: a model for {settings.task.name}; {task_class.name} cannot start from it"
        )
    if not settings.tokenizer.joint:
        raise _unusable_pretrained_error(
            f"{model_table['start']}: has a vocabulary for each side; training cannot start from it"
        )
    before, usual = (
        config.to_tables({"task": settings.task})["task"],
        config.to_tables({"task": task_class.Config()})["task"],
    )
    inherited = {key: before[key] for key in task_class.inherited_config_keys if key in before}
    if usual.get("length", 0) > settings.model.n_positions:
        inherited["length"] = settings.model.n_positions
    tokenizer = found.tokenizers.source
    return PretrainedModel(
        model_table["start"], tokenizer, settings.tokenizer, settings.model, inherited, collect_weights(model)
    )


def _unusable_pretrained_error(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; leave out --from, or name another model")
