"""The run directory: a model and everything needed to use it, to go on training it and to know how it was made.

    config.toml         the resolved recipe              log.jsonl       what training saw, step by step
    tokenizer.json      and what else the task saves     metrics.json    how good it became, how long it took
    model.safetensors   the best weights so far          train.safetensors, train.json, snapshots/: checkpoint.py

Every file is written aside, flushed and renamed, but for log.jsonl, which grows and is cut back to what the
checkpoint knows, and curve.png, which can be drawn again. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from regard import config
from regard.data.corpus import SHORTEST_ROW, DataConfig
from regard.errors import CheckpointError, ConfigError, did_you_mean
from regard.models import exchange
from regard.models.families import family_of
from regard.models.presets import ModelConfig
from regard.models.weights import load_weights
from regard.tasks import TASKS, Task
from regard.text.vocabulary import TokenizerConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The recipe's ``[train]`` table."""

    steps: int
    batch_tokens: int
    accumulate: int = 1
    learning_rate: float
    schedule: Literal["inverse-sqrt", "linear", "cosine", "constant"] = "inverse-sqrt"
    warmup: int
    weight_decay: float = 0.0
    clip: float = 1.0
    seed: int = 1
    log_every: int
    validate_every: int
    save_every: int
    patience: int = 10
    average: int = 5
    layer_decay: float = 1.0
    precision: Literal["float32", "bfloat16"]
    compiled: bool

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "accumulate", "log_every", "validate_every", "save_every", "average"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} = {getattr(self, name)}; expected at least 1")
        for name in ("warmup", "patience", "seed", "weight_decay"):
            if not 0 <= getattr(self, name) < 2**63:
                raise ConfigError(f"train.{name} = {getattr(self, name)}; expected 0 or more")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"train.{name} = {getattr(self, name)}; expected more than 0")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"train.layer_decay = {self.layer_decay}; expected more than 0 and at most 1")


UNTRAINED = TrainConfig(
    steps=1,
    batch_tokens=1,
    learning_rate=1e-3,
    warmup=0,
    log_every=1,
    validate_every=1,
    save_every=1,
    precision="float32",
    compiled=False,
)
"""The table of a model that was not trained here; it says nothing."""


@dataclass(frozen=True)
class RunConfig:
    """A resolved recipe: every key of every table has a value."""

    task: Any
    data: DataConfig
    tokenizer: TokenizerConfig
    model: ModelConfig
    train: TrainConfig

    def __post_init__(self) -> None:
        if self.train.compiled and not self.model.packed:
            shapes = f"model.architecture = {self.model.architecture} has batches of many shapes"
            raise ConfigError(f"train.compiled = true, but {shapes}; leave it out")

    def tables(self) -> config.Tables:
        """As plain tables, in the order of the recipe."""
        return config.tables_of(vars(self))


def task_of(tables: config.Tables, where: str) -> type[Task]:
    """The task a recipe names."""
    name = tables.get("task", {}).get("name")
    if name is None:
        raise ConfigError(f'{where}: no task; add name = "translate" under [task]; known: {", ".join(TASKS)}')
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"{where}: task.name = {name!r} is unknown; {did_you_mean(str(name), TASKS)}")
    return TASKS[name]


def schema(task: type[Task], tables: config.Tables, where: str) -> dict[str, type]:
    """The dataclass of each table of a recipe for this task, and for the architecture that it names."""
    return {
        "task": task.Config,
        "data": DataConfig,
        "tokenizer": TokenizerConfig,
        "model": family_of(task.families, tables.get("model", {}), where).Config,
        "train": TrainConfig,
    }


def resolved(tables: config.Tables, where: str) -> RunConfig:
    """The complete tables as one config."""
    kinds = schema(task_of(tables, where), tables, where)
    checked = config.check(tables, kinds, where)
    for name, kind in kinds.items():
        missing = config.missing(kind, checked.get(name, {}))
        if missing:
            raise ConfigError(f"{where}: no value for {name}.{missing[0]}; was this file cut short?")
    return RunConfig(**{name: config.build(kind, checked[name]) for name, kind in kinds.items()})


def open_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """A trained model with the task it was trained for: a run, or a directory of another library."""
    run = RunDirectory(path)
    return imported(path) if exchange.is_foreign(path) and not run.exists() else run.load()


def imported(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """The model in a directory of another library, as if it had been trained here."""
    found = exchange.read(path)
    name = found.task["name"]
    if name not in TASKS:
        raise CheckpointError(f"{path}: a {found.family.name} is for the task '{name}', which is not there yet")
    task: Any = TASKS[name].adopt(found)
    model = task.build(found.config)
    found.fill(model)
    vocabulary = TokenizerConfig(kind="ready", vocabulary=task.vocabulary, joint=found.tokenizers.joint)
    nothing = DataConfig(train=(), max_length=SHORTEST_ROW)
    settings = RunConfig(task.config, nothing, vocabulary, found.config, UNTRAINED)
    return settings, task, model.eval()


class RunDirectory:
    """The files of a run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.weights = path / "model.safetensors"
        self.log = path / "log.jsonl"
        self.metrics = path / "metrics.json"
        self.stores = path / "store"

    def exists(self) -> bool:
        """A run was begun here."""
        return self.config.exists()

    def read_config(self) -> RunConfig:
        """The resolved recipe this run was begun with."""
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path}: no such run directory; `regard train` makes one")
        if not self.config.exists():
            found = f"{self.path}: not a run directory: it has no config.toml"
            raise CheckpointError(f"{found}; name one that `regard train` or `regard import` made")
        return resolved(config.read(self.config), str(self.config))

    def read_metrics(self) -> dict[str, Any]:
        """How training went; nothing while it has not ended."""
        try:
            found: dict[str, Any] = json.loads(self.metrics.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CheckpointError(f"{self.metrics}: damaged ({error}); delete it, or restore it from a copy") from None
        return found

    def load(self) -> tuple[RunConfig, Task, nn.Module]:
        """The task and the model with its best weights, ready for use."""
        settings = self.read_config()
        task = TASKS[settings.task.name].load(settings.task, settings.tokenizer, self.path)
        model = task.build(settings.model)
        load_weights(model, self.weights)
        return settings, task, model.eval()
