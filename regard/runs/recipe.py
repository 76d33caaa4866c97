"""The recipe schema: the dataclass of each TOML table, and the resolved recipe, in which every key has a value.

Used by training and inference alike; training/recipe_completion.py chooses the keys that a recipe leaves out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from regard import config
from regard.data.corpus import DataConfig
from regard.errors import ConfigError, did_you_mean
from regard.models.architectures import architecture_of
from regard.models.config import ModelConfig
from regard.models.freezing import Freeze, Unfreeze
from regard.ranges import SEED_RANGE, Range, check_table
from regard.tasks import TASKS, Task
from regard.text.tokenizer_training import TokenizerConfig

MAX_THREADS = 1024
"""Threads of a training step, at most: more than machines have cores."""

StepCount = Annotated[int, Range(1, 10**9)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The recipe's ``[train]`` table.

    A batch of `batch_tokens` consists of `accumulate` micro-batches. With `batch_ramp` the first step has one, and
    their number grows linearly over that fraction of the steps. Where a recipe has no `steps`, `minutes` chooses them:
    those of training and validating, at the speed measured before the first step.

    `threads` compute a step on a CPU. The sums are divided among them, so a different number gives different bits; it
    is chosen when a run begins and kept when it is resumed. Runs of 0.1 have 0, for as many as the process takes. With
    `interpolation` the weights that are kept lie between those that training started from and the trained ones.
    """

    steps: StepCount
    minutes: Annotated[float, Range(0.0, 1e6, zero="train.steps is given or chosen from the data")] = 0.0
    batch_tokens: Annotated[int, Range(1, 10**8)]
    accumulate: Annotated[int, Range(1, 10**6)] = 1
    batch_ramp: Annotated[float, Range(0.0, 1.0)] = 0.0
    learning_rate: Annotated[float, Range(0.0, 1000.0, excludes="least")]
    schedule: Literal[
        "inverse-sqrt", "linear", "one-cycle", "cosine", "slanted-triangular", "trapezoid", "constant"
    ] = "inverse-sqrt"
    warmup: Annotated[int, Range(0, 10**9)]
    weight_decay: Annotated[float, Range(0.0, 1000.0)] = 0.0
    clip: Annotated[float, Range(0.0, math.inf, excludes="least")] = 1.0
    seed: Annotated[int, SEED_RANGE] = 1
    log_every: StepCount
    validate_every: StepCount
    save_every: StepCount
    patience: Annotated[int, Range(0, 10**9)] = 10
    average: Annotated[int, Range(1, 1000)] = 5
    interpolation: Annotated[float, Range(0.0, 1.0, excludes="least")] = 1.0
    layer_decay: Annotated[float, Range(0.0, 1.0, excludes="least")] = 1.0
    freeze: Annotated[Freeze, Range(1, 1000)] = "none"
    unfreeze: Annotated[Unfreeze, Range(1, 10**9)] = "none"
    precision: Literal["float32", "bfloat16"]
    compiled: bool
    threads: Annotated[int, Range(0, MAX_THREADS, zero="as many as torch takes")] = 0

    def __post_init__(self) -> None:
        check_table(self, "train")
        if self.unfreeze != "none" and self.freeze == "encoder":
            raise ConfigError('train.freeze = "encoder" leaves no layer for train.unfreeze; leave one of them out')
        if self.batch_ramp and self.accumulate == 1:
            raise ConfigError(
                "train.batch_ramp: a batch grows by micro-batches, but train.accumulate = 1; "
                "set it to those of the largest batch, or leave train.batch_ramp out"
            )

    def describe_batch(self) -> str:
        """Return the setting of the batch size, as messages name it."""
        in_parts = f" in {self.accumulate} micro-batches" if self.accumulate > 1 else ""
        return f"train.batch_tokens = {self.batch_tokens}{in_parts}"


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
"""The ``[train]`` table of a model that was not trained here: placeholders without meaning."""


@dataclass(frozen=True)
class RunConfig:
    """A resolved recipe: every key of every table has a value."""

    task: Any
    data: DataConfig
    tokenizer: TokenizerConfig
    model: ModelConfig
    train: TrainConfig

    def __post_init__(self) -> None:
        if self.train.compiled and not self.uses_packing:
            pooling = f'task.pooling = "{getattr(self.task, "pooling", "")}"'
            cause = pooling if self.model.uses_packing else f"model.architecture = {self.model.architecture}"
            problem = f"{cause} has batches of many shapes"
            raise ConfigError(f"train.compiled = true, but {problem}; leave it out")

    @property
    def uses_packing(self) -> bool:
        """Return True if texts are packed into rows of one shape, as the model and the task allow."""
        return self.model.uses_packing and TASKS[self.task.name].packs_texts(vars(self.task))

    def tables(self) -> config.Tables:
        """Return all values as plain tables, in the order of the recipe."""
        return config.to_tables(vars(self))

    @property
    def was_trained_here(self) -> bool:
        """Return False for a model that was trained by another library."""
        return self.train != PLACEHOLDER_TRAIN_CONFIG

    def applicable_tables(self) -> config.Tables:
        """Return the tables without keys that have no effect on this model, and without placeholders."""
        tables = self.tables()
        if not self.was_trained_here:
            del tables["data"], tables["train"]
        if self.tokenizer.kind == "ready":
            del tables["tokenizer"]["kind"]
        return config.applicable_tables(tables, {name: table.__class__ for name, table in vars(self).items()})


def get_task_class(tables: config.Tables, where: str) -> type[Task]:
    """Return the task that a recipe names."""
    name = tables.get("task", {}).get("name")
    if name is None:
        raise ConfigError(f'{where}: no task; add name = "translate" under [task]; known: {", ".join(TASKS)}')
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"{where}: task.name = {name!r} is unknown; {did_you_mean(str(name), TASKS)}")
    return TASKS[name]


def recipe_schema(task_class: type[Task], tables: config.Tables, where: str) -> dict[str, type]:
    """Return the dataclass of each table of a recipe, for its task and architecture."""
    return {
        "task": task_class.Config,
        "data": DataConfig,
        "tokenizer": TokenizerConfig,
        "model": architecture_of(task_class.architectures, tables.get("model", {}), where).Config,
        "train": TrainConfig,
    }


def build_run_config(tables: config.Tables, where: str) -> RunConfig:
    """Return complete tables as one config."""
    schema = recipe_schema(get_task_class(tables, where), tables, where)
    checked = config.check(tables, schema, where)
    for name, table_class in schema.items():
        missing = config.missing_keys(table_class, checked.get(name, {}))
        if missing:
            raise ConfigError(f"{where}: no value for {name}.{missing[0]}; was this file cut short?")
    return RunConfig(**{name: config.build(table_class, checked[name]) for name, table_class in schema.items()})
