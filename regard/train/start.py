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
from regard.models.presets import ModelConfig
from regard.models.weights import weights_of
from regard.progress import say
from regard.tasks import Task
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import TokenizerConfig
from regard.train.run import open_model

FREE = ("start", "dropout")
"""Keys of ``[model]`` that need not be those of the model it starts from."""

DROPOUT = 0.1
"""Where the model was trained without, for it had text enough; what comes after has less."""

HEADS = "heads."


class Report(NamedTuple):
    """Names of tensors: taken over, drawn anew, left behind."""

    loaded: list[str]
    new: list[str]
    unused: list[str]

    def __str__(self) -> str:
        def named(names: list[str]) -> str:
            return f"{len(names)}" + (f" ({', '.join(names)})" if names else "")

        return f"{len(self.loaded)} tensors loaded, new: {named(self.new)}, unused: {named(self.unused)}"


@dataclass(frozen=True)
class Start:
    """A trained model to start from."""

    path: str
    tokenizer: Tokenizer
    vocabulary: TokenizerConfig
    shape: ModelConfig
    task: Mapping[str, Any]
    weights: Mapping[str, Tensor]

    def named(self, tables: config.Tables) -> config.Tables:
        """The recipe with the architecture of this model, where it names none."""
        return {**tables, "model": {"architecture": self.shape.architecture, **tables["model"]}}

    def adopted(self, given: config.Tables, where: str) -> config.Tables:
        """The recipe with the shape and the vocabulary of this model; it may not ask for others.

        But texts may be longer than those it was made for, where it has no weights for positions.
        """
        shape = {**config.tables_of({"model": self.shape})["model"], "start": self.path}
        shape["dropout"] = shape["dropout"] or DROPOUT
        asked = given["task"].get("length", 0)
        self._check_length(asked, where)
        shape["n_positions"] = max(shape["n_positions"], asked)
        for key, value in given["model"].items():
            if key not in FREE and value != shape.get(key):
                raise ConfigError(
                    f"{where}: model.{key} = {value!r}, but {self.path} has {shape.get(key)!r}; leave it out"
                )
        vocabulary = config.tables_of({"tokenizer": self.vocabulary})["tokenizer"]
        for key, value in given["tokenizer"].items():
            if value != vocabulary[key]:
                raise ConfigError(f"{where}: tokenizer.{key}: the vocabulary is that of {self.path}; leave it out")
        task = {**self.task, **given["task"]}
        return {**given, "model": {**shape, **given["model"]}, "task": task, "tokenizer": vocabulary}

    def _check_length(self, asked: int, where: str) -> None:
        """Refuse texts longer than the positions that the model has vectors for."""
        most = self.shape.n_positions
        if self.shape.bound and asked > most:
            raise ConfigError(
                f"{where}: task.length = {asked}, but {self.path} has learned {most} positions; "
                f"give task.length={most} or less, or leave it out"
            )

    def fill(self, model: nn.Module) -> Report:
        """Put the weights into a model, and say what became of them."""
        wanted = dict(model.named_parameters())
        fitting = [name for name, weight in wanted.items() if name in self.weights]
        fitting = [name for name in fitting if self.weights[name].shape == wanted[name].shape]
        new = [name for name in wanted if name not in fitting]
        for name in new:
            if not name.startswith(HEADS):
                raise _other(f"{self.path}: lacks the tensor '{name}' in the shape of this model")
        with torch.no_grad():
            for name in fitting:
                wanted[name].copy_(self.weights[name])
        report = Report(fitting, new, [name for name in self.weights if name not in fitting])
        say(f"{self.path}: {report}")
        return report


def start_from(table: Mapping[str, Any], task: type[Task]) -> Start:
    """The model that a ``[model]`` table names."""
    settings, found, model = open_model(Path(table["start"]))
    if type(settings.model) not in [family.Config for family in task.families.values()]:
        raise _other(f"{table['start']}: a model for {settings.task.name}; {task.name} cannot start from it")
    if not settings.tokenizer.joint:
        raise _other(f"{table['start']}: has a vocabulary for each side; training cannot start from it")
    before, usual = config.tables_of({"task": settings.task})["task"], config.tables_of({"task": task.Config()})["task"]
    inherited = {key: before[key] for key in task.inherited if key in before}
    if usual.get("length", 0) > settings.model.n_positions:
        inherited["length"] = settings.model.n_positions
    tokenizer = found.tokenizers.source
    return Start(table["start"], tokenizer, settings.tokenizer, settings.model, inherited, weights_of(model))


def _other(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; leave out --from, or name another model")
