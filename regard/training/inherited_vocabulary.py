"""The vocabulary of another translator, which a recipe names by `tokenizer.start` instead of learning its own.

A student has the vocabulary of its teacher this way; weights are not taken over (pretrained.py does that). Called by
recipe_completion.py and prepare.py when a run begins: a resumed run has the vocabulary in its directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import config
from regard.config import format_setting
from regard.errors import ConfigError
from regard.runs.model_loading import open_model
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks import TASKS, Task
from regard.tasks.translate import TranslationTask


@dataclass(frozen=True)
class InheritedVocabulary:
    """The vocabulary of a translator, or its two, with the special tokens that the task's table names."""

    path: str
    task: TranslationTask
    tokenizer_table: Mapping[str, Any]

    def complete_recipe(self, tables: config.Tables, where: str) -> config.Tables:
        """Return the recipe with the settings of this vocabulary; other values are refused."""
        for key, value in tables["tokenizer"].items():
            if value != self.tokenizer_table[key]:
                inherited = f"the vocabulary of tokenizer.start has {format_setting(self.tokenizer_table[key])}"
                raise ConfigError(
                    f"{where}: tokenizer.{key} = {format_setting(value)}, but {inherited} ({self.path}); "
                    "leave one of the two out"
                )
        inherited_keys = {key: getattr(self.task.config, key) for key in TranslationTask.inherited_config_keys}
        return {
            **tables,
            "tokenizer": dict(self.tokenizer_table),
            "task": {**inherited_keys, **tables["task"]},
        }

    def build_task(self, task_config: Any) -> TranslationTask:
        """Return the task of a recipe with this vocabulary."""
        return TranslationTask(task_config, self.task.tokenizers)


def load_inherited_vocabulary(
    tokenizer_table: Mapping[str, Any], task_class: type[Task], where: str
) -> InheritedVocabulary | None:
    """Return the vocabulary that a ``[tokenizer]`` table names by `start`; None if it names none."""
    path = tokenizer_table.get("start")
    if not path:
        return None
    if task_class is not TranslationTask:
        raise ConfigError(f"{where}: tokenizer.start is for translators, not for {task_class.name}; leave it out")
    if not isinstance(path, str):
        raise ConfigError(f"{where}: tokenizer.start = {path!r}; expected the directory of a translator")
    run_config, task = _open_task(Path(path))
    if not isinstance(task, TranslationTask):
        problem = f"tokenizer.start = {path}: a model for {run_config.task.name}, not a translator"
        raise ConfigError(f"{where}: {problem}; name a translator, or leave it out")
    table = {**config.to_tables({"tokenizer": run_config.tokenizer})["tokenizer"], "start": path}
    return InheritedVocabulary(path, task, table)


def _open_task(path: Path) -> tuple[RunConfig, Task]:
    """Return the config and the task of a model; the weights of a run directory are not read."""
    run = RunDirectory(path)
    if not run.exists():
        run_config, task, _ = open_model(path)
        return run_config, task
    run_config = run.read_config()
    run.check_task_files()
    return run_config, TASKS[run_config.task.name].load(run_config.task, run_config.tokenizer, path)
