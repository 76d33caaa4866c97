"""The pretrained model that fine-tuning starts from: its vocabulary, its shape and its weights.

All weights of the body must fit. Heads are loaded if both models have them in the same shape; the report counts tensors
that were loaded, newly initialised and unused. Called by recipe_completion.py and prepare.py when a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard import config
from regard.errors import ConfigError
from regard.models.config import ModelConfig
from regard.models.lm_encoder import (
    describe_difference,
    is_language_model,
    make_bilm_config,
    make_encoder_config,
    merge_weights,
    rename_weights,
)
from regard.models.recurrent.config import RecurrentLMConfig
from regard.models.weights import collect_weights
from regard.progress import print_message
from regard.runs.model_loading import open_model
from regard.runs.recipe import RunConfig, TrainConfig
from regard.tasks import Task
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig

OVERRIDABLE_MODEL_KEYS = ("start", "start_backward", "dropout")
"""Keys of ``[model]`` that may differ from those of the pretrained model."""

FINE_TUNING_DROPOUT = 0.1
"""Dropout of fine-tuning where the model was pretrained without: there is less data than in pretraining."""

HEAD_PREFIX = "heads."

OpenedModel = tuple[RunConfig, Task, nn.Module]


class WeightLoadingReport(NamedTuple):
    """Names of tensors by what happened to them."""

    loaded: list[str]
    newly_initialised: list[str]
    unused: list[str]

    def __str__(self) -> str:
        def count(names: list[str]) -> str:
            return f"{len(names)}" + (f" ({', '.join(names)})" if names else "")

        return f"{len(self.loaded)} tensors loaded, new: {count(self.newly_initialised)}, unused: {count(self.unused)}"


@dataclass(frozen=True)
class PretrainedModel:
    """A pretrained model to start from."""

    path: str
    tokenizer: Tokenizer
    tokenizer_config: TokenizerConfig
    model_config: ModelConfig
    task_table: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    train_defaults: Mapping[str, Any] = field(default_factory=dict)

    def set_architecture(self, tables: config.Tables) -> config.Tables:
        """Return the recipe with the architecture of this model, unless it names one."""
        return {**tables, "model": {"architecture": self.model_config.architecture, **tables["model"]}}

    def complete_recipe(self, recipe_tables: config.Tables, where: str) -> config.Tables:
        """Return the recipe with the shape and the vocabulary of this model; other values are refused.

        Texts may be longer than in pretraining if the model has no learned positions.
        """
        shape = {**config.to_tables({"model": self.model_config})["model"], "start": self.path}
        shape["dropout"] = shape["dropout"] or FINE_TUNING_DROPOUT
        requested_length = recipe_tables["task"].get("length", 0)
        self._check_length(requested_length, where)
        shape["n_positions"] = max(shape["n_positions"], requested_length)
        for key, value in recipe_tables["model"].items():
            if key not in OVERRIDABLE_MODEL_KEYS and value != shape.get(key):
                raise ConfigError(
                    f"{where}: model.{key} = {value!r}, but {self.path} has {shape.get(key)!r}; leave it out"
                )
        vocabulary = config.to_tables({"tokenizer": self.tokenizer_config})["tokenizer"]
        for key, value in recipe_tables["tokenizer"].items():
            if value != vocabulary[key]:
                raise ConfigError(f"{where}: tokenizer.{key}: the vocabulary is that of {self.path}; leave it out")
        return {
            **recipe_tables,
            "model": {**shape, **recipe_tables["model"]},
            "task": {**self.task_table, **recipe_tables["task"]},
            "tokenizer": {**vocabulary, "start": ""},
            "train": {**self.fixed_train_settings, **recipe_tables.get("train", {})},
        }

    @property
    def fixed_train_settings(self) -> config.Table:
        """The settings of ``[train]`` that other defaults depend on."""
        return {key: value for key, value in self.train_defaults.items() if key == "freeze"}

    def _check_length(self, requested_length: int, where: str) -> None:
        """Refuse texts longer than the learned positions of the model."""
        n_positions = self.model_config.n_positions
        if self.model_config.is_length_limited and requested_length > n_positions:
            raise ConfigError(
                f"{where}: task.length = {requested_length}, but {self.path} has learned {n_positions} positions; "
                f"give task.length={n_positions} or less, or leave it out"
            )

    def load_weights_into(self, model: nn.Module) -> WeightLoadingReport:
        """Copy the weights into a model, and report what was loaded."""
        parameters = dict(model.named_parameters())
        fitting = [name for name in parameters if name in self.weights]
        fitting = [name for name in fitting if self.weights[name].shape == parameters[name].shape]
        new = [name for name in parameters if name not in fitting]
        for name in new:
            if not name.startswith(HEAD_PREFIX):
                raise _unusable_pretrained_error(f"{self.path}: lacks the tensor '{name}' in the shape of this model")
        with torch.no_grad():
            for name in fitting:
                parameters[name].copy_(self.weights[name])
        report = WeightLoadingReport(fitting, new, [name for name in self.weights if name not in fitting])
        print_message(f"{self.path}: {report}")
        return report


def load_pretrained(model_table: Mapping[str, Any], task_class: type[Task]) -> PretrainedModel:
    """Return the pretrained model that a ``[model]`` table names."""
    run_config, task, model = open_model(Path(model_table["start"]))
    if task_class.starts_from_language_models and model_table.get("start_backward"):
        return _load_bilm(model_table["start_backward"], model_table["start"], (run_config, task, model), task_class)
    if task_class.starts_from_language_models and is_language_model(run_config.model):
        return _load_language_model(model_table["start"], run_config, task, model, task_class)
    if type(run_config.model) not in [family.Config for family in task_class.architectures.values()]:
        raise _unusable_pretrained_error(
            f"{model_table['start']}: a model for {run_config.task.name}; {task_class.name} cannot start from it"
        )
    if not run_config.tokenizer.joint:
        raise _unusable_pretrained_error(
            f"{model_table['start']}: has a vocabulary for each side; training cannot start from it"
        )
    pretrained_table = config.to_tables({"task": run_config.task})["task"]
    inherited = {key: pretrained_table[key] for key in task_class.inherited_config_keys if key in pretrained_table}
    return PretrainedModel(
        model_table["start"],
        task.tokenizers.source,
        run_config.tokenizer,
        run_config.model,
        {**inherited, **_limit_length(task_class, run_config.model)},
        collect_weights(model),
    )


def _load_language_model(
    path: str, run_config: RunConfig, task: Task, model: nn.Module, task_class: type[Task]
) -> PretrainedModel:
    """Return a language model as the encoder that its layers become."""
    direction = run_config.task.direction
    return PretrainedModel(
        path,
        task.tokenizers.source,
        run_config.tokenizer,
        make_encoder_config(run_config.model, direction),
        {**_transfer_defaults(run_config, "task", task_class.Config), **_limit_length(task_class, run_config.model)},
        rename_weights(collect_weights(model), direction),
        _transfer_defaults(run_config, "train", TrainConfig),
    )


def _load_bilm(backward_path: str, path: str, forward: OpenedModel, task_class: type[Task]) -> PretrainedModel:
    """Return a forward and a backward language model as one encoder, frozen unless a recipe says otherwise."""
    (run_config, task, model), backward = forward, open_model(Path(backward_path))
    _check_bilm(path, forward, backward_path, backward)
    assert isinstance(run_config.model, RecurrentLMConfig)
    return PretrainedModel(
        path,
        task.tokenizers.source,
        run_config.tokenizer,
        make_bilm_config(run_config.model, backward_path),
        _limit_length(task_class, run_config.model),
        merge_weights(collect_weights(model), collect_weights(backward[2])),
        {"freeze": "encoder"},
    )


def _check_bilm(
    path: str,
    forward: OpenedModel,
    backward_path: str,
    backward: OpenedModel,
) -> None:
    """Refuse two models that are not a forward and a backward language model of one shape and vocabulary."""
    for name, (run_config, _, _), direction in ((path, forward, "forward"), (backward_path, backward, "backward")):
        if getattr(run_config.task, "direction", "") != direction:
            raise _unusable_pretrained_error(f"{name}: not a {direction} language model")
    problem = describe_difference(forward[0].model, backward[0].model)
    if not problem and forward[1].tokenizers.source.fingerprint != backward[1].tokenizers.source.fingerprint:
        problem = "their vocabularies differ; train both on the same text"
    if problem:
        raise _unusable_pretrained_error(f"{path} and {backward_path}: {problem}")


def _transfer_defaults(run_config: RunConfig, table: str, table_class: type) -> config.Table:
    """Return the defaults that come with a language model for one table, restricted to the keys that the table has."""
    values = run_config.model.transfer_defaults.get(table, {})
    return {key: value for key, value in values.items() if key in {each.name for each in fields(table_class)}}


def _limit_length(task_class: type[Task], model_config: ModelConfig) -> dict[str, int]:
    """Return ``task.length`` where the default is longer than the model."""
    default_length = config.to_tables({"task": task_class.Config()})["task"].get("length", 0)
    return {"length": model_config.n_positions} if default_length > model_config.n_positions else {}


def _unusable_pretrained_error(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; leave out --from, or name another model")
