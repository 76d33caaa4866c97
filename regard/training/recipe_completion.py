"""Completion of a recipe: keys that the user left out are chosen from the data and the device.

    parse_recipe                checks what the user wrote; adds what the pretrained model and the architecture fix
    build_provisional_config    refuses impossible values before any text is read
    complete_recipe             gives every key a value once the text is encoded (defaults.py has the rules)

Called by prepare.py when a run begins; a resumed run takes all its values from config.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from regard import config
from regard.data.corpus import KEPT_SET, DataConfig
from regard.data.store import TokenStore
from regard.errors import ConfigError
from regard.models.config import apply_preset
from regard.models.freezing import check_freeze
from regard.models.heads import check_pooled_token
from regard.models.layer_combination import check_layer_choice, count_layers
from regard.models.lm_encoder import is_language_model
from regard.runs.recipe import RunConfig, build_run_config, get_task_class, recipe_schema
from regard.tasks import Task
from regard.tasks.task import TrainingScale
from regard.text.tokenizer_training import choose_vocabulary_size
from regard.training import defaults
from regard.training.inherited_vocabulary import InheritedVocabulary, load_inherited_vocabulary
from regard.training.pretrained import PretrainedModel, load_pretrained
from regard.training.pretrained_vectors import PretrainedVectors, load_pretrained_vectors

LENGTH_LIMIT_KEYS = (("data", "max_length"), ("model", "n_positions"))
"""Keys that limit the positions of an example."""


@dataclass(frozen=True)
class PartialRecipe:
    """A recipe before any text is read.

    `user_tables` is what the user wrote; `tables` adds what the pretrained model, the architecture and the device
    determine. `schema` holds the dataclass of each table.
    """

    task_class: type[Task]
    schema: Mapping[str, type]
    user_tables: config.Tables
    tables: config.Tables
    pretrained: PretrainedModel | None
    where: str
    vectors: PretrainedVectors | None = None
    vocabulary: InheritedVocabulary | None = None

    @property
    def is_frozen(self) -> bool:
        """True if the whole encoder is frozen."""
        return self.tables["train"].get("freeze") == "encoder"

    @property
    def is_timed(self) -> bool:
        """True if the number of steps follows from ``train.minutes``."""
        train = self.tables["train"]
        return bool(train.get("minutes")) and "steps" not in train

    def with_steps(self, steps: int) -> PartialRecipe:
        """Return the recipe with a number of steps."""
        return replace(self, tables={**self.tables, "train": {**self.tables["train"], "steps": steps}})

    def length_limit(self) -> int | None:
        """Return the positions of an example that the recipe allows; None if it sets no limit."""
        limits = [self.tables[name][key] for name, key in LENGTH_LIMIT_KEYS if key in self.tables[name]]
        return min(limits) if limits else None


def parse_recipe(tables: config.Tables, device: torch.device, where: str) -> PartialRecipe:
    """Check the tables and add all values that do not depend on the text."""
    task_class = get_task_class(tables, where)
    start = tables.get("model", {}).get("start")
    vectors = load_pretrained_vectors(start)
    is_model = start and isinstance(start, str) and vectors is None
    pretrained = load_pretrained(tables["model"], task_class) if is_model else None
    tables = tables if pretrained is None else pretrained.set_architecture(tables)
    tables = tables if vectors is None else vectors.complete_recipe(tables, task_class, where)
    schema = recipe_schema(task_class, tables, where)
    empty: config.Tables = {name: {} for name in schema}
    user_tables = empty | config.check(tables, schema, where)
    task_class.check_recipe(user_tables, where)
    full = user_tables if pretrained is None else pretrained.complete_recipe(user_tables, where)
    vocabulary = load_inherited_vocabulary(full["tokenizer"], task_class, where)
    full = full if vocabulary is None else vocabulary.complete_recipe(full, where)
    task_defaults = {**task_class.default_task_config(device, full["model"]), **_architecture_defaults(schema, "task")}
    full = {**full, "task": {**task_defaults, **full["task"]}}
    full = {**full, "task": task_class.complete_task_table(full, user_tables["task"], where)}
    return PartialRecipe(task_class, schema, user_tables, full, pretrained, where, vectors, vocabulary)


def build_provisional_config(recipe: PartialRecipe, device: torch.device) -> RunConfig:
    """Return the recipe with guesses for what depends on the data, to refuse values that no data could make right."""
    tables, schema = recipe.tables, recipe.schema
    model = apply_preset({"preset": "tiny", **tables["model"]}, schema["model"])
    scale = TrainingScale(10_000, 1_000_000, model["d_model"], recipe.pretrained is not None, recipe.is_frozen)
    training_defaults = _merge_training_defaults(recipe, scale, device)
    guesses: config.Tables = {
        "data": {"train": (), "max_length": defaults.ROW_WIDTHS[0], **tables["data"]},
        "tokenizer": {
            "kind": recipe.task_class.default_tokenizer_kind,
            "vocabulary": choose_vocabulary_size(0),
            **tables["tokenizer"],
        },
        "model": model,
        "train": defaults.complete_train_table(tables["train"], scale, device, training_defaults),
    }
    provisional = build_run_config(tables | guesses, recipe.where)
    _check_sets(provisional, recipe)
    if "preset" in tables["model"] or "n_layers" in tables["model"]:
        _check_layers(provisional)
    check_pooled_token(getattr(provisional.task, "pooling", ""), provisional.model)
    if recipe.pretrained is None and recipe.vocabulary is None:
        provisional.tokenizer.check_vocabulary_size(recipe.task_class.special_token_names)
    return provisional


def _check_sets(provisional: RunConfig, recipe: PartialRecipe) -> None:
    """Refuse sets where the task does not draw by them, and to keep what no model was trained on."""
    if provisional.data.has_sets and not recipe.task_class.mixes_sets:
        raise ConfigError(f"{recipe.where}: data.temperature and data.keep are for translators; leave them out")
    if provisional.data.keep and recipe.pretrained is None:
        raise ConfigError(f"{recipe.where}: data.keep is for a translator that starts from another; add --from")


def _check_layers(run_config: RunConfig) -> None:
    """Refuse to freeze or to combine more layers than the model will have."""
    n_layers = count_layers(run_config.model)
    check_freeze(run_config.train.freeze, n_layers, has_encoder=not is_language_model(run_config.model))
    check_layer_choice(getattr(run_config.task, "layers", "last"), n_layers)


def complete_recipe(recipe: PartialRecipe, task: Task, train: TokenStore, device: torch.device) -> config.Tables:
    """Return the recipe with a value for every key."""
    tables, schema, lengths = recipe.tables, recipe.schema, task.example_lengths(train)
    n_tokens = _count_epoch_tokens(tables["data"], task, train)
    data = {"max_length": task.row_width(lengths) or defaults.choose_row_width(lengths), **tables["data"]}
    model = defaults.complete_model_table(schema["model"], tables["model"], n_tokens, data["max_length"], device)
    scale = TrainingScale(len(train), n_tokens, model["d_model"], recipe.pretrained is not None, recipe.is_frozen)
    training_defaults = _merge_training_defaults(recipe, scale, device)
    return {
        "task": tables["task"],
        "data": data,
        "tokenizer": {"kind": task.default_tokenizer_kind, **tables["tokenizer"], "vocabulary": task.vocabulary_size},
        "model": model,
        "train": defaults.complete_train_table(tables["train"], scale, device, training_defaults, data["max_length"]),
    }


def _count_epoch_tokens(data_table: config.Table, task: Task, train: TokenStore) -> int:
    """Return the tokens of an epoch: what is kept in mind is a fraction of it, however large."""
    n_tokens = task.example_lengths(train)[:, -1].astype(np.int64)
    if not data_table.get("keep"):
        return int(n_tokens.sum())
    is_own = task.example_sets(train) != KEPT_SET
    keep_ratio: float = data_table.get("keep_ratio", DataConfig.keep_ratio)
    return round(int(n_tokens[is_own].sum()) / (1 - keep_ratio))


def collect_chosen_settings(recipe: PartialRecipe, complete_tables: config.Tables) -> dict[str, Any]:
    """Return the values chosen for the user: not given, not the default, and not those of the pretrained model."""
    known = {name: config.defaults(table_class) for name, table_class in recipe.schema.items()}
    if recipe.pretrained is not None:
        known |= config.to_tables(
            {"model": recipe.pretrained.model_config, "tokenizer": recipe.pretrained.tokenizer_config}
        )
    if recipe.vocabulary is not None:
        known["tokenizer"] = dict(recipe.vocabulary.tokenizer_table)
    return {
        f"{name}.{key}": value
        for name, table in complete_tables.items()
        for key, value in table.items()
        if key not in recipe.user_tables[name] and (key not in known[name] or value != known[name][key])
    }


def _architecture_defaults(schema: Mapping[str, type], table: str) -> config.Table:
    """Return the defaults of an architecture for one table, restricted to what the table of this task accepts."""
    values = schema["model"].recipe_defaults.get(table, {})  # type: ignore[attr-defined]
    known = {field.name for field in fields(schema[table])}
    return {
        key: value
        for key, value in values.items()
        if key in known and (callable(value) or config.accepts(schema[table], key, value))
    }


def _merge_training_defaults(recipe: PartialRecipe, scale: TrainingScale, device: torch.device) -> config.Table:
    """Return the ``[train]`` defaults: the task's come first when fine-tuning, else the architecture's.

    Those of a pretrained language model come before both, unless it is frozen.
    """
    task = recipe.task_class.training_defaults(scale, device)
    architecture = _architecture_defaults(recipe.schema, "train")
    packing = {} if recipe.task_class.packs_texts(recipe.tables["task"]) else {"compiled": False}
    if recipe.pretrained is None:
        return {**task, **architecture, **packing}
    transfer = {} if scale.is_frozen else recipe.pretrained.train_defaults
    return {**architecture, **task, **transfer, **packing}
