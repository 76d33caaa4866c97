"""From a recipe to everything the loop needs: tokenizers, stores, the resolved config, the model.

A fresh run reads the text three times (count, learn the vocabulary, encode) and writes ``config.toml`` last, so a
directory with a config is a run that can be resumed. Resuming takes all choices from there, and the token ids from
the stores: where the files are as they were, it reads no text. Where they are not, or a store is gone or damaged,
the text is encoded again, and must give the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard import config
from regard.data.corpus import Corpus, Example, write_store
from regard.data.order import BucketOrder, Order, PackedOrder
from regard.data.store import DigestMismatchError, TokenStore
from regard.disk import write_text
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.models.blocks import initialise_weights
from regard.models.config import apply_preset
from regard.progress import warn
from regard.runs.recipe import RunConfig, build_run_config, get_task_class, recipe_schema
from regard.runs.run_directory import RunDirectory
from regard.tasks import Task
from regard.tasks.shared.validation_sample import select_scored_examples
from regard.tasks.task import TrainingScale
from regard.text.tokenizer_training import TokenizerConfig, choose_vocabulary_size
from regard.training import defaults as choose
from regard.training.checkpoint import CheckpointManager, TrainingProgress
from regard.training.pretrained import PretrainedModel, load_pretrained

BATCH_ORDER_KEYS = ("seed", "batch_tokens", "accumulate")
"""Keys of ``[train]`` that say which examples form a batch: a run cannot change them on the way."""

LENGTH_LIMIT_KEYS = (("data", "max_length"), ("model", "n_positions"))
"""Keys that say how many positions an example may take."""


@dataclass
class PreparedRun:
    """A run ready to be trained."""

    directory: RunDirectory
    config: RunConfig
    task: Task
    model: nn.Module
    train_order: Order
    valid_order: Order
    train_store: TokenStore
    valid_store: TokenStore
    device: torch.device
    chosen_settings: dict[str, Any]

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
    tables: config.Tables, out: Path, device: torch.device, *, where: str, resume: bool = False
) -> PreparedRun:
    """Begin a run in `out`, or take up the one that is there."""
    run = RunDirectory(out)
    if run.exists() and not resume:
        raise ConfigError(f"{out}: already holds a run; pass --resume to go on with it, or choose another --out")
    if not run.exists() and CheckpointManager(run).checkpoint_path.exists():
        raise CheckpointError(f"{out}: holds a checkpoint but no config.toml; restore it, or choose another --out")
    if resume and not run.exists():
        warn(f"{out}: there is no run to go on with; a new one begins")
    try:
        if run.exists():
            return _resume_run(tables, run, device, where)
        with _clean_up_on_failure(run):
            return _start_run(tables, run, device, where)
    except OSError as error:  # faults of files that are read have been named by then
        raise TrainingError(
            f"{out}: cannot be written ({error.strerror or error}); make room, or choose another --out"
        ) from None


@contextmanager
def _clean_up_on_failure(run: RunDirectory) -> Iterator[None]:
    """Where no run could begin, what was written for it goes again; what was there stays."""
    made = [each for each in (run.path, *run.path.parents) if not each.exists()]
    before = set() if made else set(run.path.iterdir())
    try:
        yield
    except BaseException:
        if run.path.is_dir() and not run.exists():
            for each in set(run.path.iterdir()) - before:
                if each.is_dir():
                    rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)
        with suppress(OSError):  # not made yet, or somebody else uses it by now
            for each in made:
                each.rmdir()
        raise


@dataclass(frozen=True)
class PartialRecipe:
    """What a run is to be, before any text is read.

    `asked` is what the user wrote; in `given` it is joined by what the model it starts from, the family of models and
    the device say of it. `kinds` are the dataclasses of its tables.
    """

    task_class: type[Task]
    schema: Mapping[str, type]
    user_tables: config.Tables
    tables: config.Tables
    pretrained: PretrainedModel | None
    where: str


def _start_run(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> PreparedRun:
    """A new run in the directory."""
    recipe = _parse_recipe(tables, device, where)
    likely = _build_provisional_config(recipe, device)
    corpus = Corpus(recipe.task_class.make_reader(likely.task, likely.data), likely.data, where)
    task = _build_task(recipe, likely, corpus, run)
    asked = [recipe.tables[name][key] for name, key in LENGTH_LIMIT_KEYS if key in recipe.tables[name]]
    train, valid = _open_stores(run, corpus, task.with_max_length(min(asked)) if asked else task, None)
    full = _complete_recipe(recipe, task, train, device)
    settings = build_run_config(full, where)
    cut = task.with_max_length(_max_positions(settings))
    if cut is not task and max(int(cut.example_lengths(store).max()) for store in (train, valid)) > _max_positions(
        settings
    ):
        train, valid = _open_stores(run, corpus, cut, None)
    for store in (train, valid):
        task.warn_about_encoded_data(store)
    prepared = _build_prepared_run(
        run, settings, cut, train, valid, device, _collect_chosen_settings(recipe, full), recipe.pretrained
    )
    write_text(run.config_path, config.dump(settings.tables()))
    return prepared


def _parse_recipe(tables: config.Tables, device: torch.device, where: str) -> PartialRecipe:
    """The tables, checked, with what can be said without the text."""
    task = get_task_class(tables, where)
    named = tables.get("model", {}).get("start")
    start = load_pretrained(tables["model"], task) if named and isinstance(named, str) else None
    tables = tables if start is None else start.set_architecture(tables)
    kinds = recipe_schema(task, tables, where)
    none: config.Tables = {name: {} for name in kinds}
    asked = none | config.check(tables, kinds, where)
    task.check_recipe(asked, where)
    given = asked if start is None else start.complete_recipe(asked, where)
    suiting = {**task.default_task_config(device, given["model"]), **_architecture_defaults(kinds, "task")}
    given = {**given, "task": {**suiting, **given["task"]}}
    return PartialRecipe(task, kinds, asked, given, start, where)


def _build_task(recipe: PartialRecipe, provisional_config: RunConfig, corpus: Corpus, run: RunDirectory) -> Task:
    """The task with its vocabulary, which is written into the directory."""
    table = recipe.tables["tokenizer"]
    wanted = {
        "kind": recipe.task_class.default_tokenizer_kind,
        "vocabulary": choose_vocabulary_size(corpus.statistics.n_words),
        **table,
    }
    run.path.mkdir(parents=True, exist_ok=True)
    ready = recipe.pretrained.tokenizer if recipe.pretrained else None
    task = recipe.task_class.from_corpus(provisional_config.task, config.build(TokenizerConfig, wanted), corpus, ready)
    if "vocabulary" in table:
        _check_vocabulary(table["vocabulary"], task.vocabulary_size)
    task.save(run.path)
    return task


def _check_vocabulary(requested: int, actual: int) -> None:
    """Refuse a size that was asked for and that the text does not give."""
    if actual < requested:
        found = f"{requested:,} asked, but this text gives at most {actual:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for {actual:,} or fewer, or leave it out")
    if actual > requested:
        found = f"{requested:,} asked, but the letters of this text alone are {actual:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for at least that many, or leave it out")


def _collect_chosen_settings(recipe: PartialRecipe, complete_tables: config.Tables) -> dict[str, Any]:
    """What was chosen for the user: not what was asked for, has its default, or is that of the model it starts from."""
    usual = {name: config.defaults(kind) for name, kind in recipe.schema.items()}
    if recipe.pretrained is not None:
        usual |= config.to_tables(
            {"model": recipe.pretrained.model_config, "tokenizer": recipe.pretrained.tokenizer_config}
        )
    return {
        f"{name}.{key}": value
        for name, table in complete_tables.items()
        for key, value in table.items()
        if key not in recipe.user_tables[name] and (key not in usual[name] or value != usual[name][key])
    }


def _resume_run(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> PreparedRun:
    """The run in the directory; of what is given now only what leaves the order of batches alone may differ."""
    settings = run.read_config()
    kind = get_task_class(settings.tables(), where)
    before = settings.tables()
    for name, table in config.check(tables, recipe_schema(kind, before, where), where).items():
        for key, value in table.items():
            if value == before[name][key] or (name == "train" and key not in BATCH_ORDER_KEYS):
                before[name][key] = value
            else:
                raise ConfigError(
                    f"{where}: {name}.{key} = {value!r}, but the run in {run.path} has {before[name][key]!r}; "
                    "leave it out, or begin another run"
                )
    settings = build_run_config(before, where)
    corpus = Corpus(kind.make_reader(settings.task, settings.data), settings.data, where)
    task = kind.load(settings.task, settings.tokenizer, run.path).with_max_length(_max_positions(settings))
    train, valid = _open_stores(run, corpus, task, CheckpointManager(run).read_progress())
    write_text(run.config_path, config.dump(settings.tables()))
    untrained = settings.model.start and not CheckpointManager(run).checkpoint_path.exists()
    start = load_pretrained(settings.tables()["model"], kind) if untrained else None
    return _build_prepared_run(run, settings, task, train, valid, device, {}, start)


def _max_positions(run_config: RunConfig) -> int:
    """Positions that an example may take: those of a row, and no more than the model has."""
    return min(run_config.data.max_length, run_config.model.n_positions)


def _open_stores(
    run: RunDirectory, corpus: Corpus, task: Task, progress: TrainingProgress | None
) -> tuple[TokenStore, TokenStore]:
    """The token ids of training and validation; when going on, no text is read for what is on disk already."""
    mark = corpus.fingerprint(task.fingerprint)

    def store(name: str, examples: Callable[[], Iterator[Example]], total: int | None = None) -> TokenStore:
        path = run.stores_path / name
        expected = "" if progress is None else _expected_digest(path, mark, progress.data.get(name, ""))
        there = None if progress is None else TokenStore.open(path, mark)
        return _open_or_write_store(path, there, examples, task, mark, expected, total)

    total = corpus.statistics.n_examples if progress is None else None
    return store("train", corpus.train_examples, total), store("valid", corpus.valid_examples)


def _expected_digest(path: Path, fingerprint: str, trained_digest: str) -> str:
    """The digest of the ids that a run must go on with; where no record of one is left, the files must be the same."""
    manifest = TokenStore.read_manifest(path)
    digest: str = trained_digest or manifest.get("digest", "")
    if digest or not path.exists() or manifest.get("fingerprint") == fingerprint:
        return digest
    if not manifest:
        raise CheckpointError(f"{path}: damaged; delete it, and the text will be encoded again")
    raise _data_changed_error(path)


def _open_or_write_store(
    path: Path,
    store: TokenStore | None,
    examples: Callable[[], Iterator[Example]],
    task: Task,
    fingerprint: str,
    expected_digest: str,
    n_examples: int | None,
) -> TokenStore:
    """The store that is there, if it is the one that is expected, or a new one."""
    if store is not None and store.digest != expected_digest and store.digest and expected_digest:
        raise _data_changed_error(path)
    if store is None:
        try:
            store = write_store(
                path,
                examples(),
                task,
                fingerprint=fingerprint,
                expected_digest=expected_digest,
                total=n_examples,
            )
        except DigestMismatchError:
            raise _data_changed_error(path) from None
    if len(store) == 0:
        raise ConfigError(f"no examples left to {store.purpose} on; give more training data, or other files by --valid")
    return store


def _data_changed_error(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: the data, or how this version reads it, changed since the run began, so it cannot go on exactly; "
        "begin another run"
    )


def _architecture_defaults(schema: Mapping[str, type], table: str) -> config.Table:
    """Keys of a table that suit the models of a recipe, of those that the table has."""
    habits = schema["model"].training_defaults.get(table, {})  # type: ignore[attr-defined]
    return {key: value for key, value in habits.items() if key in {field.name for field in fields(schema[table])}}


def _build_provisional_config(recipe: PartialRecipe, device: torch.device) -> RunConfig:
    """The recipe with guesses for what depends on the data: finds values that no data could make right."""
    given, kinds = recipe.tables, recipe.schema
    model = apply_preset({"preset": "tiny", **given["model"]}, kinds["model"])
    amount = TrainingScale(10_000, 1_000_000, model["d_model"], recipe.pretrained is not None)
    likely: config.Tables = {
        "data": {"train": (), "max_length": choose.ROW_WIDTHS[0], **given["data"]},
        "tokenizer": {
            "kind": recipe.task_class.default_tokenizer_kind,
            "vocabulary": choose_vocabulary_size(0),
            **given["tokenizer"],
        },
        "model": model,
        "train": choose.complete_train_table(
            given["train"], amount, device, _merge_training_defaults(recipe.task_class, kinds, amount, device)
        ),
    }
    found = build_run_config(given | likely, recipe.where)
    if recipe.pretrained is None:
        found.tokenizer.check_vocabulary_size(recipe.task_class.special_token_names)
    return found


def _merge_training_defaults(
    task_class: type[Task], schema: Mapping[str, type], scale: TrainingScale, device: torch.device
) -> config.Table:
    """How these models are trained for the task; one that is trained already, as the task says first of all."""
    task, models = task_class.training_defaults(scale, device), _architecture_defaults(schema, "train")
    return {**models, **task} if scale.is_finetuning else {**task, **models}


def _complete_recipe(recipe: PartialRecipe, task: Task, train: TokenStore, device: torch.device) -> config.Tables:
    """The recipe with a value for every key."""
    given, kinds, lengths = recipe.tables, recipe.schema, task.example_lengths(train)
    tokens = int(lengths[:, -1].sum(dtype=np.int64))
    data = {"max_length": task.row_width(lengths) or choose.choose_row_width(lengths), **given["data"]}
    model = choose.complete_model_table(kinds["model"], given["model"], tokens, data["max_length"], device)
    amount = TrainingScale(len(train), tokens, model["d_model"], recipe.pretrained is not None)
    habits = _merge_training_defaults(recipe.task_class, kinds, amount, device)
    return {
        "task": given["task"],
        "data": data,
        "tokenizer": {"kind": task.default_tokenizer_kind, **given["tokenizer"], "vocabulary": task.vocabulary_size},
        "model": model,
        "train": choose.complete_train_table(given["train"], amount, device, habits, data["max_length"]),
    }


def _build_prepared_run(
    run: RunDirectory,
    run_config: RunConfig,
    task: Task,
    train_store: TokenStore,
    valid_store: TokenStore,
    device: torch.device,
    chosen_settings: dict[str, Any],
    pretrained: PretrainedModel | None,
) -> PreparedRun:
    model = task.build_model(run_config.model)
    initialise_weights(model, torch.Generator().manual_seed(run_config.train.seed), run_config.model.init_std)
    if pretrained is not None:
        pretrained.load_weights_into(model)
    order = _build_order(task, train_store, run_config, seed=run_config.train.seed)
    valid_order = _build_order(task, valid_store, run_config, seed=0, shuffle=False)
    return PreparedRun(
        run, run_config, task, model.to(device), order, valid_order, train_store, valid_store, device, chosen_settings
    )


def _build_order(task: Task, store: TokenStore, run_config: RunConfig, *, seed: int, shuffle: bool = True) -> Order:
    """The order of batches over the examples that fit a row; a warning counts the others."""
    lengths = task.example_lengths(store)
    width, most = run_config.data.max_length, _max_positions(run_config)
    limit = f"data.max_length = {width}" if most == width else f"model.n_positions = {most}"
    fitting = np.flatnonzero((lengths <= most).all(axis=1))
    if len(fitting) == 0:
        raise ConfigError(
            f"{limit}: not one example to {store.purpose} on is that short; the longest takes {lengths.max():,}"
        )
    if len(fitting) < len(lengths):
        warn(
            f"{len(lengths) - len(fitting):,} of {len(lengths):,} examples to {store.purpose} on are longer than "
            f"{limit} tokens and are left out (the longest takes {lengths.max():,})"
        )
    batch_tokens = run_config.train.batch_tokens // run_config.train.accumulate
    rows = batch_tokens // width
    if rows == 0:
        raise ConfigError(
            f"train.batch_tokens = {run_config.train.batch_tokens} in {run_config.train.accumulate} parts is less than one "
            f"row of data.max_length = {width} tokens; raise it to {width * run_config.train.accumulate} or more"
        )
    if not run_config.model.uses_packing:
        return BucketOrder(lengths, batch_tokens, seed=seed, shuffle=shuffle, items=fitting)
    capacity = [width] * lengths.shape[1]
    return PackedOrder(lengths, capacity, rows, seed=seed, shuffle=shuffle, items=fitting)
