"""From a recipe to everything the loop needs: tokenizers, stores, the resolved config, the model.

A fresh run reads the text three times (count, learn the vocabulary, encode) and writes ``config.toml`` last, so a
directory with a config is a run that can be resumed. Resuming takes all choices from there, and the token ids from
the stores: where the files are as they were, it reads no text. Where they are not, or a store is gone or damaged,
the text is encoded again, and must give the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard import config
from regard.data.corpus import Corpus, Example, write_store
from regard.data.order import PackedOrder
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
from regard.train.start import start_from

FIXES_ORDER = ("seed", "batch_tokens", "accumulate")
"""Keys of ``[train]`` that say which examples form a batch: a run cannot change them on the way."""


@dataclass
class Prepared:
    """A run ready to be trained."""

    run: RunDirectory
    config: RunConfig
    task: Task
    model: nn.Module
    order: PackedOrder
    valid_order: PackedOrder
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
    try:
        return (_take_up if run.exists() else _begin)(tables, run, device, where)
    except OSError as error:  # faults of files that are read have been named by then
        raise TrainingError(
            f"{out}: cannot be written ({error.strerror or error}); make room, or choose another --out"
        ) from None


def _begin(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> Prepared:
    kind = task_of(tables, where)
    none: config.Tables = {name: {} for name in schema(kind)}
    given = none | config.check(tables, schema(kind), where)
    start = start_from(given["model"], kind) if given["model"].get("start") else None
    if start is not None:
        given = start.adopted(given, where)
    likely = _likely(kind, given, device, where)
    corpus = Corpus(kind, likely.data, where)
    wanted = {"kind": kind.pieces, "vocabulary": choose_vocabulary(corpus.counted.n_words), **given["tokenizer"]}
    run.path.mkdir(parents=True, exist_ok=True)
    tokenizer = config.build(TokenizerConfig, wanted)
    task = kind.learn(likely.task, tokenizer, corpus, start.tokenizer if start else None)
    if "vocabulary" in given["tokenizer"] and task.vocabulary < tokenizer.vocabulary:
        found = f"{tokenizer.vocabulary:,} asked, but this text gives at most {task.vocabulary:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for {task.vocabulary:,} or fewer, or leave it out")
    if "vocabulary" in given["tokenizer"] and task.vocabulary > tokenizer.vocabulary:
        found = f"{tokenizer.vocabulary:,} asked, but the letters of this text alone are {task.vocabulary:,} pieces"
        raise ConfigError(f"tokenizer.vocabulary: {found}; ask for at least that many, or leave it out")
    task.save(run.path)
    train, valid = _stores(run, corpus, task, None)
    full = _choose(given, task, train, device)
    settings = resolved(full, where)
    write_text(run.config, config.dump(settings.tables()))
    chosen = {
        f"{name}.{key}": full[name][key]
        for name, kind_of in schema(kind).items()
        for key in config.missing(kind_of, given[name])
    }
    return _prepared(run, settings, task, train, valid, device, chosen)


def _take_up(tables: config.Tables, run: RunDirectory, device: torch.device, where: str) -> Prepared:
    """The run in the directory; of what is given now only what leaves the order of batches alone may differ."""
    settings = run.read_config()
    kind = task_of(settings.tables(), where)
    before = settings.tables()
    for name, table in config.check(tables, schema(kind), where).items():
        for key, value in table.items():
            if value == before[name][key] or (name == "train" and key not in FIXES_ORDER):
                before[name][key] = value
            else:
                raise ConfigError(
                    f"{where}: {name}.{key} = {value!r}, but the run in {run.path} has {before[name][key]!r}; "
                    "leave it out, or begin another run"
                )
    settings = resolved(before, where)
    task = kind.load(settings.task, settings.tokenizer, run.path)
    train, valid = _stores(run, Corpus(kind, settings.data, where), task, Checkpoints(run).progress())
    write_text(run.config, config.dump(settings.tables()))
    return _prepared(run, settings, task, train, valid, device, {})


def _stores(run: RunDirectory, corpus: Corpus, task: Task, so_far: Progress | None) -> tuple[TokenStore, TokenStore]:
    """The token ids of training and validation; no text is read for what is on disk already."""
    mark = corpus.fingerprint(task.fingerprint)

    def store(name: str, examples: Callable[[], Iterator[Example]], total: int | None = None) -> TokenStore:
        path = run.stores / name
        expected = "" if so_far is None else _expected(path, mark, so_far.data.get(name, ""))
        return _store(path, examples, task, mark, expected, total)

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
    examples: Callable[[], Iterator[Example]],
    task: Task,
    mark: str,
    expected: str,
    total: int | None,
) -> TokenStore:
    store = TokenStore.open(path, mark)
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
        raise ConfigError(f"no examples left to {path.name} on; give more training data, or --valid files of their own")
    return store


def _changed(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: the data changed since this run began, so it cannot go on exactly; begin another run"
    )


def _likely(kind: type[Task], given: config.Tables, device: torch.device, where: str) -> RunConfig:
    """The recipe with guesses for what depends on the data: finds values that no data could make right."""
    model = with_preset({"preset": "tiny", **given["model"]}, kind.Model)
    amount = Amount(10_000, 1_000_000, model["d_model"], bool(given["model"].get("start")))
    likely: config.Tables = {
        "data": {"train": (), "max_length": choose.WIDTHS[0], **given["data"]},
        "tokenizer": {"kind": kind.pieces, "vocabulary": choose_vocabulary(0), **given["tokenizer"]},
        "model": model,
        "train": choose.train_table(given["train"], amount, device, kind.habits(amount, device)),
    }
    return resolved(given | likely, where)


def _choose(given: config.Tables, task: Task, train: TokenStore, device: torch.device) -> config.Tables:
    """The recipe with a value for every key."""
    lengths = task.lengths(train)
    tokens = int(lengths[:, -1].sum(dtype=np.int64))
    data = {"max_length": task.width(lengths) or choose.row_width(lengths), **given["data"]}
    model = choose.model_table(task.Model, given["model"], tokens, data["max_length"], device)
    amount = Amount(len(train), tokens, model["d_model"], bool(model.get("start")))
    return {
        "task": given["task"],
        "data": data,
        "tokenizer": {"kind": task.pieces, **given["tokenizer"], "vocabulary": task.vocabulary},
        "model": model,
        "train": choose.train_table(given["train"], amount, device, task.habits(amount, device)),
    }


def _prepared(
    run: RunDirectory,
    settings: RunConfig,
    task: Task,
    train: TokenStore,
    valid: TokenStore,
    device: torch.device,
    chosen: dict[str, Any],
) -> Prepared:
    model = task.build(settings.model)
    initialise(model, torch.Generator().manual_seed(settings.train.seed))
    if settings.model.start and not Checkpoints(run).tensors.exists():
        start_from(settings.tables()["model"], type(task)).fill(model)
    order = _packed_order(task, train, settings, seed=settings.train.seed)
    valid_order = _packed_order(task, valid, settings, seed=0, shuffle=False)
    return Prepared(run, settings, task, model.to(device), order, valid_order, train, valid, device, chosen)


def _packed_order(
    task: Task, store: TokenStore, settings: RunConfig, *, seed: int, shuffle: bool = True
) -> PackedOrder:
    """The order of batches over the examples that fit a row; a warning counts the others."""
    lengths = task.lengths(store)
    width = settings.data.max_length
    most = min(width, settings.model.n_positions)
    limit = f"data.max_length = {width}" if most == width else f"model.n_positions = {most}"
    fitting = np.flatnonzero((lengths <= most).all(axis=1))
    if len(fitting) == 0:
        raise ConfigError(
            f"{limit}: not one example to {store.path.name} on is that short; the longest takes {lengths.max():,}"
        )
    if len(fitting) < len(lengths):
        warn(
            f"{len(lengths) - len(fitting):,} of {len(lengths):,} examples to {store.path.name} on are longer than "
            f"{limit} tokens and are left out (the longest takes {lengths.max():,})"
        )
    rows = settings.train.batch_tokens // settings.train.accumulate // width
    if rows == 0:
        raise ConfigError(
            f"train.batch_tokens = {settings.train.batch_tokens} in {settings.train.accumulate} parts is less than one "
            f"row of data.max_length = {width} tokens; raise it to {width * settings.train.accumulate} or more"
        )
    capacity = [width] * lengths.shape[1]
    return PackedOrder(lengths, capacity, rows, seed=seed, shuffle=shuffle, items=fitting)
