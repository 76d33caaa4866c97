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
from regard.data.corpus import MIN_ROW_WIDTH, DataConfig
from regard.errors import CheckpointError, ConfigError, did_you_mean
from regard.models import exchange
from regard.models.families import architecture_of
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


PLACEHOLDER_TRAIN_CONFIG = TrainConfig(
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
        if self.train.compiled and not self.model.uses_packing:
            shapes = f"model.architecture = {self.model.architecture} has batches of many shapes"
            raise ConfigError(f"train.compiled = true, but {shapes}; leave it out")

    def tables(self) -> config.Tables:
        """As plain tables, in the order of the recipe."""
        return config.to_tables(vars(self))


def get_task_class(tables: config.Tables, where: str) -> type[Task]:
    """The task a recipe names."""
    name = tables.get("task", {}).get("name")
    if name is None:
        raise ConfigError(f'{where}: no task; add name = "translate" under [task]; known: {", ".join(TASKS)}')
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"{where}: task.name = {name!r} is unknown; {did_you_mean(str(name), TASKS)}")
    return TASKS[name]


def recipe_schema(task_class: type[Task], tables: config.Tables, where: str) -> dict[str, type]:
    """The dataclass of each table of a recipe for this task, and for the architecture that it names."""
    return {
        "task": task_class.Config,
        "data": DataConfig,
        "tokenizer": TokenizerConfig,
        "model": architecture_of(task_class.architectures, tables.get("model", {}), where).Config,
        "train": TrainConfig,
    }


def build_run_config(tables: config.Tables, where: str) -> RunConfig:
    """The complete tables as one config."""
    kinds = recipe_schema(get_task_class(tables, where), tables, where)
    checked = config.check(tables, kinds, where)
    for name, kind in kinds.items():
        missing = config.missing_keys(kind, checked.get(name, {}))
        if missing:
            raise ConfigError(f"{where}: no value for {name}.{missing[0]}; was this file cut short?")
    return RunConfig(**{name: config.build(kind, checked[name]) for name, kind in kinds.items()})


def open_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """A trained model with the task it was trained for: a run, or a directory of another library."""
    run = RunDirectory(path)
    return open_hf_model(path) if exchange.is_hf_directory(path) and not run.exists() else run.load()


def open_hf_model(path: Path) -> tuple[RunConfig, Task, nn.Module]:
    """The model in a directory of another library, as if it had been trained here."""
    found = exchange.read_hf_directory(path)
    name = found.task["name"]
    if name not in TASKS:
        raise CheckpointError(f"{path}: a {found.family.name} is for the task '{name}', which is not there yet")
    task: Any = TASKS[name].from_hf_checkpoint(found)
    model = task.build(found.config)
    found.load_into(model)
    vocabulary = TokenizerConfig(kind="ready", vocabulary=task.vocabulary, joint=found.tokenizers.is_joint)
    nothing = DataConfig(train=(), max_length=MIN_ROW_WIDTH)
    settings = RunConfig(task.config, nothing, vocabulary, found.config, PLACEHOLDER_TRAIN_CONFIG)
    return settings, task, model.eval()


class RunDirectory:
    """The files of a run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.toml"
        self.weights_path = path / "model.safetensors"
        self.log_path = path / "log.jsonl"
        self.metrics_path = path / "metrics.json"
        self.stores_path = path / "store"

    def exists(self) -> bool:
        """A run was begun here."""
        return self.config_path.exists()

    def read_config(self) -> RunConfig:
        """The resolved recipe this run was begun with."""
        if not self.path.is_dir():
            raise CheckpointError(f"{self.path}: no such run directory; `regard train` makes one")
        if not self.config_path.exists():
            found = f"{self.path}: not a run directory: it has no config.toml"
            raise CheckpointError(f"{found}; name one that `regard train` or `regard import` made")
        return build_run_config(config.read(self.config_path), str(self.config_path))

    def read_metrics(self) -> dict[str, Any]:
        """How training went; nothing while it has not ended."""
        try:
            found: dict[str, Any] = json.loads(self.metrics_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise CheckpointError(
                f"{self.metrics_path}: damaged ({error}); delete it, or restore it from a copy"
            ) from None
        return found

    def load(self) -> tuple[RunConfig, Task, nn.Module]:
        """The task and the model with its best weights, ready for use."""
        settings = self.read_config()
        task = TASKS[settings.task.name].load(settings.task, settings.tokenizer, self.path)
        model = task.build_model(settings.model)
        load_weights(model, self.weights_path)
        return settings, task, model.eval()
