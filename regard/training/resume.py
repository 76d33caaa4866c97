"""Settings of a resumed run: those in its config.toml, but for what the user changes now.

FIXED_KEYS           fix which examples form a batch, or say what was chosen at the start: refused
UPDATE_KEYS          change the updates of the weights: accepted, printed, and recorded in log.jsonl
all others           change when the run logs, validates, saves or ends, but no update: accepted and printed
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard import config
from regard.config import format_setting
from regard.errors import ConfigError
from regard.runs.recipe import RunConfig, TrainConfig, build_run_config, get_task_class, recipe_schema
from regard.runs.run_directory import RunDirectory
from regard.training.schedule import FINITE_SCHEDULES

FIXED_KEYS = ("seed", "batch_tokens", "accumulate", "minutes")
"""Keys of ``[train]`` that fix which examples form a batch, or chose the steps: a resumed run cannot change them."""

UPDATE_KEYS = (
    "learning_rate",
    "schedule",
    "warmup",
    "batch_ramp",
    "weight_decay",
    "clip",
    "layer_decay",
    "freeze",
    "unfreeze",
    "precision",
    "compiled",
    "threads",
)
"""Keys of ``[train]`` that change the updates of the weights from the next step on."""


class ChangedSetting(NamedTuple):
    """A key of ``[train]`` that a resumed run changes."""

    key: str
    old: Any
    new: Any
    changes_updates: bool

    def __str__(self) -> str:
        return f"train.{self.key} {format_setting(self.old)} -> {format_setting(self.new)}"


def read_resumed_config(tables: config.Tables, run: RunDirectory, where: str) -> tuple[RunConfig, list[ChangedSetting]]:
    """Return the config of the run with what the user changes now, and the changes."""
    before = run.read_config()
    merged = before.tables()
    schema = recipe_schema(get_task_class(merged, where), merged, where)
    for name, table in config.check(tables, schema, where).items():
        for key, value in table.items():
            if value != merged[name][key] and (name != "train" or key in FIXED_KEYS):
                raise ConfigError(
                    f"{where}: {name}.{key} = {value!r}, but the run in {run.path} has {merged[name][key]!r}; "
                    "leave it out, or begin another run"
                )
            merged[name][key] = value
    after = build_run_config(merged, where)
    return after, _list_changes(before.train, after.train)


def check_steps(run_config: RunConfig, run: RunDirectory, step: int, where: str) -> None:
    """Refuse fewer steps than the run has taken."""
    steps = run_config.train.steps
    if steps < step:
        problem = f"{where}: train.steps = {steps}, but the run in {run.path} is at step {step} already"
        raise ConfigError(f"{problem}; give {step} to end it there, or more to continue")


def describe_changes(changes: list[ChangedSetting], step: int) -> str:
    """Return one line that names the changes and, where weights will differ, says so."""
    text = f"changed    {', '.join(map(str, changes))}"
    if step and any(change.changes_updates for change in changes):
        text += f"; from step {step:,} on this run differs from an uninterrupted one"
    return text


def _list_changes(before: TrainConfig, after: TrainConfig) -> list[ChangedSetting]:
    update_keys = {*UPDATE_KEYS, *(("steps",) if after.schedule in FINITE_SCHEDULES or after.batch_ramp else ())}
    return [
        ChangedSetting(key, old, new, key in update_keys)
        for key, old in vars(before).items()
        if (new := getattr(after, key)) != old
    ]
