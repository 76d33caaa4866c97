"""Preparation of a run: from a recipe to tokenizers, token stores, the resolved config and the model.

    _start_run     parse the recipe -> tokenizer -> token stores -> choose what is left open -> model -> config.toml
    _resume_run    config.toml -> tokenizer -> token stores -> model

A fresh run reads the text three times (count, train the tokenizer, encode) and writes ``config.toml`` last, so a
directory with a config holds a run that can be resumed. Where ``train.minutes`` are to choose the steps, loop.py writes
it once it has measured the speed. Called by `regard.train`; loop.py trains what this returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard import config
from regard.data.corpus import Corpus
from regard.data.order import Order
from regard.data.store import TokenStore
from regard.disk import convert_write_errors
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.models.blocks import initialise_weights
from regard.models.freezing import check_unfreeze, freeze_weights
from regard.progress import print_message, warn
from regard.runs.recipe import RunConfig, build_run_config, get_task_class
from regard.runs.run_directory import RunDirectory
from regard.tasks import Task
from regard.tasks.shared.validation_sample import select_scored_examples
from regard.text.tokenizer_training import TokenizerConfig, choose_vocabulary_size
from regard.training.batch_order import build_order, max_positions
from regard.training.checkpoint import CheckpointManager
from regard.training.data_location import find_data, find_path, note_start_directory
from regard.training.interpolation import is_interpolated, write_start
from regard.training.memory import check_model_fits
from regard.training.pretrained import PretrainedModel, load_pretrained
from regard.training.pretrained_vectors import PretrainedVectors, load_pretrained_vectors
from regard.training.recipe_completion import (
    PartialRecipe,
    build_provisional_config,
    collect_chosen_settings,
    complete_recipe,
    parse_recipe,
)
from regard.training.resume import ChangedSetting, check_steps, describe_changes, read_resumed_config
from regard.training.thread_count import report_kept_threads
from regard.training.token_stores import open_stores

NO_NOTES: Mapping[str, str] = {}

CompleteSettings = tuple[RunConfig, dict[str, Any]]
"""A config, and the settings in it that were chosen for the user."""


@dataclass
class PreparedRun:
    """A run ready to be trained; `complete` returns its settings for a number of steps, if that is yet to be chosen."""

    directory: RunDirectory
    config: RunConfig
    task: Task
    model: nn.Module
    train_order: Order
    valid_order: Order
    train_store: TokenStore
    valid_store: TokenStore
    device: torch.device
    corpus: Corpus
    chosen_settings: dict[str, Any]
    changed_settings: list[ChangedSetting] = field(default_factory=list)
    complete: Callable[[int], CompleteSettings] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    def set_steps(self, steps: int) -> None:
        """Complete the settings of a run for so many steps, and write them."""
        assert self.complete is not None
        (self.config, self.chosen_settings), self.complete = self.complete(steps), None
        self.directory.write_config(self.config, self.notes)

    @cached_property
    def scored_examples(self) -> Int[np.ndarray, " items"]:
        """The validation examples that the task's metrics are computed on at each validation."""
        most = self.task.max_scored_examples
        return select_scored_examples(self.task, self.valid_store, self.config.model.n_positions, most)

    @cached_property
    def all_scored_examples(self) -> Int[np.ndarray, " items"]:
        """The validation examples that the task's metrics are computed on at the end of training."""
        return select_scored_examples(self.task, self.valid_store, self.config.model.n_positions)


def prepare_run(
    tables: config.Tables,
    out: Path,
    device: torch.device,
    *,
    where: str,
    resume: bool = False,
    notes: Mapping[str, str] = NO_NOTES,
) -> PreparedRun:
    """Begin a run in `out`, or resume the one it holds; its lock is held from here until training ends.

    The `notes` on where a run comes from are written into its config.toml.
    """
    run = RunDirectory(out)
    # Files that cannot be read have raised a DataError of their own by then.
    with convert_write_errors(out, fix="make room, or choose another --out", error_type=TrainingError):
        run.acquire_lock()
        try:
            _check_directory(run, resume=resume)
            if run.exists():
                return _resume_run(tables, run, device, where)
            with _clean_up_on_failure(run):
                return _start_run(tables, run, device, where, notes)
        except BaseException:
            run.lock.release()
            raise


def _check_directory(run: RunDirectory, *, resume: bool) -> None:
    if run.exists() and not resume:
        raise ConfigError(f"{run.path}: already holds a run; pass --resume to continue it, or choose another --out")
    if not run.exists() and run.checkpoint_path.exists():
        raise CheckpointError(f"{run.path}: holds a checkpoint but no config.toml; restore it, or choose another --out")
    if resume and not run.exists():
        warn(f"{run.path}: no run to resume; a new one begins")


@contextmanager
def _clean_up_on_failure(run: RunDirectory) -> Iterator[None]:
    """Delete what was written for a run that could not begin; keep what the directory held before."""
    before = set(run.path.iterdir())
    try:
        yield
    except BaseException:
        if not run.exists():
            for each in set(run.path.iterdir()) - before:
                if each.is_dir():
                    rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)
        raise


def _start_run(
    tables: config.Tables, run: RunDirectory, device: torch.device, where: str, notes: Mapping[str, str]
) -> PreparedRun:
    """Begin a run in a directory that holds none."""
    recipe = parse_recipe(tables, device, where)
    provisional = build_provisional_config(recipe, device)
    corpus = Corpus(recipe.task_class.make_reader(provisional.task, provisional.data), provisional.data, where)
    task = _build_task(recipe, provisional, corpus, run)
    limit = recipe.length_limit()
    train, valid = open_stores(run, corpus, task if limit is None else task.with_max_length(limit))

    complete = partial(_complete_settings, recipe, task, train, device)
    run_config, chosen = complete()
    longest = max_positions(run_config)
    limited = task.with_max_length(longest)
    if limited is not task and any(limited.example_lengths(store).max() > longest for store in (train, valid)):
        train, valid = open_stores(run, corpus, limited)
    for store in (train, valid):
        task.warn_about_encoded_data(store)
    if run_config.train.freeze != "none" and not run_config.model.start:
        warn("train.freeze without --from: the frozen part keeps its random weights")
    if run_config.train.unfreeze != "none" and not run_config.model.start:
        warn("train.unfreeze without --from: layers keep their random weights until they are trained")
    if run_config.train.minutes and not recipe.is_timed:
        warn(f"train.minutes has no effect, because train.steps = {run_config.train.steps} is given; omit one of them")
    start = recipe.pretrained or recipe.vectors
    prepared = _build_run(run, run_config, limited, (train, valid), device, corpus, start, chosen_settings=chosen)
    prepared.notes = {**note_start_directory(), **notes}
    if recipe.is_timed:
        prepared.complete = complete
    else:
        run.write_config(run_config, prepared.notes)
    return prepared


def _complete_settings(
    recipe: PartialRecipe, task: Task, train: TokenStore, device: torch.device, steps: int | None = None
) -> CompleteSettings:
    tables = complete_recipe(recipe if steps is None else recipe.with_steps(steps), task, train, device)
    return build_run_config(tables, recipe.where), collect_chosen_settings(recipe, tables)


def _resume_run(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> PreparedRun:
    """Resume the run in a directory; the loop writes changed settings to config.toml once they are recorded."""
    run_config, changes = read_resumed_config(tables, run, where)
    progress = CheckpointManager(run).verify(run_config.train.average)
    check_steps(run_config, run, progress.step, where)
    task_class = get_task_class(run_config.tables(), where)
    reader = task_class.make_reader(run_config.task, run_config.data)
    corpus = Corpus(reader, find_data(reader, run_config.data, run), where, recipe_data=run_config.data)
    task = task_class.load(run_config.task, run_config.tokenizer, run.path).with_max_length(max_positions(run_config))
    stores = open_stores(run, corpus, task, progress)
    untrained = run_config.model.start and not run.checkpoint_path.exists()
    start = _load_start(run, run_config, task_class) if untrained else None
    prepared = _build_run(run, run_config, task, stores, device, corpus, start, changed_settings=changes)
    if changes and not progress.has_ended(run_config.train):
        print_message(describe_changes(changes, progress.step))
    if "threads" not in (change.key for change in changes):
        report_kept_threads(run_config.train.threads)
    return prepared


def _load_start(
    run: RunDirectory, run_config: RunConfig, task_class: type[Task]
) -> PretrainedModel | PretrainedVectors:
    """Return the word vectors or the model that a run starts from."""
    table = run_config.tables()["model"]
    table |= {key: find_path(table[key], run) for key in ("start", "start_backward") if table.get(key)}
    return load_pretrained_vectors(table["start"]) or load_pretrained(table, task_class)


def _build_task(recipe: PartialRecipe, provisional: RunConfig, corpus: Corpus, run: RunDirectory) -> Task:
    """Return the task with its tokenizer, which is saved into the directory."""
    run.path.mkdir(parents=True, exist_ok=True)
    if recipe.vocabulary is not None:
        inherited = recipe.vocabulary.build_task(provisional.task)
        inherited.save(run.path)
        return inherited
    table = recipe.tables["tokenizer"]
    kind = table.get("kind", recipe.task_class.default_tokenizer_kind)
    tokenizer_table = {"kind": kind, "vocabulary": choose_vocabulary_size(corpus.statistics.n_words, kind), **table}
    tokenizer = recipe.pretrained.tokenizer if recipe.pretrained else None
    tokenizer_config = config.build(TokenizerConfig, tokenizer_table)
    task = recipe.task_class.from_corpus(provisional.task, tokenizer_config, corpus, tokenizer)
    if recipe.vectors is not None:
        task = recipe.vectors.extend_vocabulary(task, table)
    if "vocabulary" in table:
        _check_vocabulary(table["vocabulary"], task.vocabulary_size)
    task.save(run.path)
    return task


def _check_vocabulary(requested: int, actual: int) -> None:
    """Refuse a vocabulary size that the text does not give."""
    if actual < requested:
        problem = f"{requested:,} requested, but this text gives at most {actual:,} subwords"
        raise ConfigError(f"tokenizer.vocabulary: {problem}; ask for {actual:,} or fewer, or leave it out")
    if actual > requested:
        problem = f"{requested:,} requested, but the characters of this text alone are {actual:,} tokens"
        raise ConfigError(f"tokenizer.vocabulary: {problem}; ask for at least that many, or leave it out")


def _build_run(
    run: RunDirectory,
    run_config: RunConfig,
    task: Task,
    stores: tuple[TokenStore, TokenStore],
    device: torch.device,
    corpus: Corpus,
    start: PretrainedModel | PretrainedVectors | None,
    *,
    chosen_settings: dict[str, Any] | None = None,
    changed_settings: list[ChangedSetting] | None = None,
) -> PreparedRun:
    """Build the model and the order of batches."""
    check_model_fits(task, run_config, device)
    model = task.build_model(run_config.model)
    initialise_weights(model, torch.Generator().manual_seed(run_config.train.seed), run_config.model.init_std)
    if isinstance(start, PretrainedModel):
        start.load_weights_into(model)
    elif isinstance(start, PretrainedVectors):
        start.load_into(model, task, stores[0])
    if start is not None and is_interpolated(run_config):
        write_start(run, model)
    freeze_weights(model, run_config.train.freeze)
    check_unfreeze(model, run_config.train.unfreeze)
    train_store, valid_store = stores
    task.collect_training_statistics(train_store)
    train_order = build_order(task, train_store, run_config, seed=run_config.train.seed)
    valid_order = build_order(task, valid_store, run_config, seed=0, shuffle=False)
    return PreparedRun(
        run,
        run_config,
        task,
        model.to(device),
        train_order,
        valid_order,
        train_store,
        valid_store,
        device,
        corpus,
        chosen_settings or {},
        changed_settings or [],
    )
