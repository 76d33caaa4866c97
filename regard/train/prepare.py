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
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from torch import nn

from regard import config
from regard.data.corpus import Corpus, Example, write_store
from regard.data.order import BucketOrder, Order, PackedOrder
from regard.data.store import OtherIds, TokenStore
from regard.disk import write_text
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.models.blocks import initialise
from regard.models.presets import with_preset
from regard.progress import warn
from regard.tasks import Task
from regard.tasks.task import Amount
from regard.text.vocabulary import TokenizerConfig, choose_vocabulary
from regard.train import choose
from regard.train.checkpoint import Checkpoints, Progress
from regard.train.run import RunConfig, RunDirectory, resolved, schema, task_of
from regard.train.start import Start, start_from

FIXES_ORDER = ("seed", "batch_tokens", "accumulate")
"""Keys of ``[train]`` that say which examples form a batch: a run cannot change them on the way."""

ROOM = (("data", "max_length"), ("model", "n_positions"))
"""Keys that say how many positions an example may take."""


@dataclass
class Prepared:
    """A run ready to be trained."""

    run: RunDirectory
    config: RunConfig
    task: Task
    model: nn.Module
    order: Order
    valid_order: Order
    train: TokenStore
    valid: TokenStore
    device: torch.device
    chosen: dict[str, Any]


def prepare(tables: config.Tables, out: Path, device: torch.device, *, where: str, resume: bool = False) -> Prepared:
    """Begin a run in `out`, or take up the one that is there."""
    run = RunDirectory(out)
    if run.exists() and not resume:
        raise ConfigError(f"{out}: already holds a run; pass --resume to go on with it, or choose another --out")
    if not run.exists() and Checkpoints(run).tensors.exists():
        raise CheckpointError(f"{out}: holds a checkpoint but no config.toml; restore it, or choose another --out")
    if resume and not run.exists():
        warn(f"{out}: there is no run to go on with; a new one begins")
    try:
        if run.exists():
            return _take_up(tables, run, device, where)
        with _gone_if_it_fails(run):
            return _begin(tables, run, device, where)
    except OSError as error:  # faults of files that are read have been named by then
        raise TrainingError(
            f"{out}: cannot be written ({error.strerror or error}); make room, or choose another --out"
        ) from None


@contextmanager
def _gone_if_it_fails(run: RunDirectory) -> Iterator[None]:
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
class Recipe:
    """What a run is to be, before any text is read.

    `asked` is what the user wrote; in `given` it is joined by what the model it starts from, the family of models and
    the device say of it. `kinds` are the dataclasses of its tables.
    """

    task: type[Task]
    kinds: Mapping[str, type]
    asked: config.Tables
    given: config.Tables
    start: Start | None
    where: str


def _begin(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> Prepared:
    """A new run in the directory."""
    recipe = _recipe(tables, device, where)
    likely = _likely(recipe, device)
    corpus = Corpus(recipe.task.reader(likely.task, likely.data), likely.data, where)
    task = _learned(recipe, likely, corpus, run)
    asked = [recipe.given[name][key] for name, key in ROOM if key in recipe.given[name]]
    train, valid = _stores(run, corpus, task.within(min(asked)) if asked else task, None)
    full = _choose(recipe, task, train, device)
    settings = resolved(full, where)
    cut = task.within(_room(settings))
    if cut is not task and max(int(cut.lengths(store).max()) for store in (train, valid)) > _room(settings):
        train, valid = _stores(run, corpus, cut, None)
    for store in (train, valid):
        task.remark(store)
    prepared = _prepared(run, settings, cut, train, valid, device, _chosen(recipe, full), recipe.start)
    write_text(run.config, config.dump(settings.tables()))
    return prepared


def _recipe(tables: config.Tables, device: torch.device, where: str) -> Recipe:
    """The tables, checked, with what can be said without the text."""
    task = task_of(tables, where)
    named = tables.get("model", {}).get("start")
    start = start_from(tables["model"], task) if named and isinstance(named, str) else None
    tables = tables if start is None else start.named(tables)
    kinds = schema(task, tables, where)
    none: config.Tables = {name: {} for name in kinds}
    asked = none | config.check(tables, kinds, where)
    task.check(asked, where)
    given = asked if start is None else start.adopted(asked, where)
    suiting = {**task.usual(device, given["model"]), **_suiting(kinds, "task")}
    given = {**given, "task": {**suiting, **given["task"]}}
    return Recipe(task, kinds, asked, given, start, where)


def _learned(recipe: Recipe, likely: RunConfig, corpus: Corpus, run: RunDirectory) -> Task:
    """The task with its vocabulary, which is written into the directory."""
    table = recipe.given["tokenizer"]
    wanted = {"kind": recipe.task.pieces, "vocabulary": choose_vocabulary(corpus.counted.n_words), **table}
    run.path.mkdir(parents=True, exist_ok=True)
    ready = recipe.start.tokenizer if recipe.start else None
    task = recipe.task.learn(likely.task, config.build(TokenizerConfig, wanted), corpus, ready)
    if "vocabulary" in table:
        _check_vocabulary(table["vocabulary"], task.vocabulary)
    task.save(run.path)
    return task


def _check_vocabulary(asked: int, learned: int) -> None:
    """Refuse a size that was asked for and that the text does not give."""
    if learned < asked:
        found = f"{asked:,} asked, but this text gives at most {learned:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for {learned:,} or fewer, or leave it out")
    if learned > asked:
        found = f"{asked:,} asked, but the letters of this text alone are {learned:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for at least that many, or leave it out")


def _chosen(recipe: Recipe, full: config.Tables) -> dict[str, Any]:
    """What was chosen for the user: not what was asked for, has its default, or is that of the model it starts from."""
    usual = {name: config.defaults(kind) for name, kind in recipe.kinds.items()}
    if recipe.start is not None:
        usual |= config.tables_of({"model": recipe.start.shape, "tokenizer": recipe.start.vocabulary})
    return {
        f"{name}.{key}": value
        for name, table in full.items()
        for key, value in table.items()
        if key not in recipe.asked[name] and (key not in usual[name] or value != usual[name][key])
    }


def _take_up(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> Prepared:
    """The run in the directory; of what is given now only what leaves the order of batches alone may differ."""
    settings = run.read_config()
    kind = task_of(settings.tables(), where)
    before = settings.tables()
    for name, table in config.check(tables, schema(kind, before, where), where).items():
        for key, value in table.items():
            if value == before[name][key] or (name == "train" and key not in FIXES_ORDER):
                before[name][key] = value
            else:
                raise ConfigError(
                    f"{where}: {name}.{key} = {value!r}, but the run in {run.path} has {before[name][key]!r}; "
                    "leave it out, or begin another run"
                )
    settings = resolved(before, where)
    corpus = Corpus(kind.reader(settings.task, settings.data), settings.data, where)
    task = kind.load(settings.task, settings.tokenizer, run.path).within(_room(settings))
    train, valid = _stores(run, corpus, task, Checkpoints(run).progress())
    write_text(run.config, config.dump(settings.tables()))
    untrained = settings.model.start and not Checkpoints(run).tensors.exists()
    start = start_from(settings.tables()["model"], kind) if untrained else None
    return _prepared(run, settings, task, train, valid, device, {}, start)


def _room(settings: RunConfig) -> int:
    """Positions that an example may take: those of a row, and no more than the model has."""
    return min(settings.data.max_length, settings.model.n_positions)


def _stores(run: RunDirectory, corpus: Corpus, task: Task, so_far: Progress | None) -> tuple[TokenStore, TokenStore]:
    """The token ids of training and validation; when going on, no text is read for what is on disk already."""
    mark = corpus.fingerprint(task.fingerprint)

    def store(name: str, examples: Callable[[], Iterator[Example]], total: int | None = None) -> TokenStore:
        path = run.stores / name
        expected = "" if so_far is None else _expected(path, mark, so_far.data.get(name, ""))
        there = None if so_far is None else TokenStore.open(path, mark)
        return _store(path, there, examples, task, mark, expected, total)

    total = corpus.counted.n_examples if so_far is None else None
    return store("train", corpus.train, total), store("valid", corpus.valid)


def _expected(path: Path, mark: str, learned_from: str) -> str:
    """The digest of the ids that a run must go on with; where no record of one is left, the files must be the same."""
    manifest = TokenStore.manifest(path)
    digest: str = learned_from or manifest.get("digest", "")
    if digest or not path.exists() or manifest.get("fingerprint") == mark:
        return digest
    if not manifest:
        raise CheckpointError(f"{path}: damaged; delete it, and the text will be encoded again")
    raise _changed(path)


def _store(
    path: Path,
    store: TokenStore | None,
    examples: Callable[[], Iterator[Example]],
    task: Task,
    mark: str,
    expected: str,
    total: int | None,
) -> TokenStore:
    """The store that is there, if it is the one that is expected, or a new one."""
    if store is not None and store.digest != expected and store.digest and expected:
        raise _changed(path)
    if store is None:
        try:
            store = write_store(
                path, examples(), task, vocabulary=task.limit, fingerprint=mark, expected=expected, total=total
            )
        except OtherIds:
            raise _changed(path) from None
    if len(store) == 0:
        raise ConfigError(f"no examples left to {store.purpose} on; give more training data, or other files by --valid")
    return store


def _changed(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: the data, or how this version reads it, changed since the run began, so it cannot go on exactly; "
        "begin another run"
    )


def _suiting(kinds: Mapping[str, type], table: str) -> config.Table:
    """Keys of a table that suit the models of a recipe, of those that the table has."""
    habits = kinds["model"].habits.get(table, {})  # type: ignore[attr-defined]
    return {key: value for key, value in habits.items() if key in {field.name for field in fields(kinds[table])}}


def _likely(recipe: Recipe, device: torch.device) -> RunConfig:
    """The recipe with guesses for what depends on the data: finds values that no data could make right."""
    given, kinds = recipe.given, recipe.kinds
    model = with_preset({"preset": "tiny", **given["model"]}, kinds["model"])
    amount = Amount(10_000, 1_000_000, model["d_model"], recipe.start is not None)
    likely: config.Tables = {
        "data": {"train": (), "max_length": choose.WIDTHS[0], **given["data"]},
        "tokenizer": {"kind": recipe.task.pieces, "vocabulary": choose_vocabulary(0), **given["tokenizer"]},
        "model": model,
        "train": choose.train_table(given["train"], amount, device, _habits(recipe.task, kinds, amount, device)),
    }
    found = resolved(given | likely, recipe.where)
    if recipe.start is None:
        found.tokenizer.refuse_too_few(recipe.task.specials)
    return found


def _habits(kind: type[Task], kinds: Mapping[str, type], amount: Amount, device: torch.device) -> config.Table:
    """How these models are trained for the task; one that is trained already, as the task says first of all."""
    task, models = kind.habits(amount, device), _suiting(kinds, "train")
    return {**models, **task} if amount.started else {**task, **models}


def _choose(recipe: Recipe, task: Task, train: TokenStore, device: torch.device) -> config.Tables:
    """The recipe with a value for every key."""
    given, kinds, lengths = recipe.given, recipe.kinds, task.lengths(train)
    tokens = int(lengths[:, -1].sum(dtype=np.int64))
    data = {"max_length": task.width(lengths) or choose.row_width(lengths), **given["data"]}
    model = choose.model_table(kinds["model"], given["model"], tokens, data["max_length"], device)
    amount = Amount(len(train), tokens, model["d_model"], recipe.start is not None)
    habits = _habits(recipe.task, kinds, amount, device)
    return {
        "task": given["task"],
        "data": data,
        "tokenizer": {"kind": task.pieces, **given["tokenizer"], "vocabulary": task.vocabulary},
        "model": model,
        "train": choose.train_table(given["train"], amount, device, habits, data["max_length"]),
    }


def _prepared(
    run: RunDirectory,
    settings: RunConfig,
    task: Task,
    train: TokenStore,
    valid: TokenStore,
    device: torch.device,
    chosen: dict[str, Any],
    start: Start | None,
) -> Prepared:
    model = task.build(settings.model)
    initialise(model, torch.Generator().manual_seed(settings.train.seed), settings.model.deviation)
    if start is not None:
        start.fill(model)
    order = _order(task, train, settings, seed=settings.train.seed)
    valid_order = _order(task, valid, settings, seed=0, shuffle=False)
    return Prepared(run, settings, task, model.to(device), order, valid_order, train, valid, device, chosen)


def _order(task: Task, store: TokenStore, settings: RunConfig, *, seed: int, shuffle: bool = True) -> Order:
    """The order of batches over the examples that fit a row; a warning counts the others."""
    lengths = task.lengths(store)
    width, most = settings.data.max_length, _room(settings)
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
    batch_tokens = settings.train.batch_tokens // settings.train.accumulate
    rows = batch_tokens // width
    if rows == 0:
        raise ConfigError(
            f"train.batch_tokens = {settings.train.batch_tokens} in {settings.train.accumulate} parts is less than one "
            f"row of data.max_length = {width} tokens; raise it to {width * settings.train.accumulate} or more"
        )
    if not settings.model.packed:
        return BucketOrder(lengths, batch_tokens, seed=seed, shuffle=shuffle, items=fitting)
    capacity = [width] * lengths.shape[1]
    return PackedOrder(lengths, capacity, rows, seed=seed, shuffle=shuffle, items=fitting)
