"""From a recipe to everything the loop needs: tokenizers, stores, the resolved config, the model.

A fresh run reads the text three times (count, learn the vocabulary, encode) and writes ``config.toml`` last, so a
directory with a config is a run that can be resumed. Resuming takes all choices from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard import config
from regard.data.corpus import Example, Survey, held_out, survey, write_store
from regard.data.order import PackedOrder
from regard.data.store import TokenStore, fingerprint
from regard.disk import write_text
from regard.errors import CheckpointError, ConfigError, TrainingError
from regard.models.blocks import initialise
from regard.models.presets import with_preset
from regard.progress import warn
from regard.tasks import Task
from regard.text.files import STDIN
from regard.text.pairs import paths_of
from regard.text.tokenizer import TokenizerConfig, Tokenizers, choose_vocabulary, train_tokenizer
from regard.train import choose
from regard.train.checkpoint import Checkpoints
from regard.train.run import RunConfig, RunDirectory, resolved, schema, task_of

TOKENIZER_EXAMPLES = 1_000_000
"""Examples a vocabulary is learned from, at most, spread evenly over the corpus."""


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


class Corpus:
    """The training and validation examples of a recipe, to be read any number of times."""

    def __init__(self, task: type[Task], data: config.Table, where: str) -> None:
        if not data.get("train"):
            raise ConfigError(f'{where}: no training data; give files, or add train = ["..."] under [data]')
        self.task, self.data = task, data
        if Path(STDIN) in paths_of([*data["train"], *data.get("valid", ())]):
            raise ConfigError(f"{where}: training reads its data several times, so not from standard input; use a file")
        if data.get("valid"):
            survey(self._read("valid"))
        self.counted: Survey = survey(self._read("train"))
        self._held = None if data.get("valid") else held_out(self.counted)

    def train(self) -> Iterator[Example]:
        """What is learned from."""
        examples = self._read("train")
        return examples if self._held is None else (e for e in examples if not self._held(e))

    def valid(self) -> Iterator[Example]:
        """What is validated on: files of its own, or examples held out."""
        return self._read("valid") if self._held is None else (e for e in self._read("train") if self._held(e))

    def fingerprint(self, *parts: str) -> str:
        """Changes when the files or the way to read them do."""
        files = paths_of([*self.data["train"], *self.data.get("valid", ())])
        how = [list(self.data["train"]), list(self.data.get("valid", ())), self._columns, self._skip_empty]
        return fingerprint(files, *parts, repr(how))

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.data.get("columns", ()))

    @property
    def _skip_empty(self) -> bool:
        return bool(self.data.get("skip_empty", False))

    def _read(self, part: str) -> Iterator[Example]:
        return self.task.read(self.data[part], self._columns, skip_empty=self._skip_empty)


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
    _refuse_early(given, device, where)
    corpus = Corpus(kind, given["data"], where)
    run.path.mkdir(parents=True, exist_ok=True)
    tokenizer, tokenizers = _tokenizers(given["tokenizer"], corpus)
    tokenizers.save(run.path)
    task = kind(config.build(kind.Config, given["task"]), tokenizers)
    train, valid = _stores(run, corpus, task, resumed=False)
    full = _choose(given, tokenizer, task, train, device)
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
    task = kind(settings.task, Tokenizers.load(run.path, joint=settings.tokenizer.joint))
    train, valid = _stores(run, Corpus(kind, before["data"], where), task, resumed=True)
    write_text(run.config, config.dump(settings.tables()))
    return _prepared(run, settings, task, train, valid, device, {})


def _tokenizers(given: config.Table, corpus: Corpus) -> tuple[config.Table, Tokenizers]:
    """The vocabulary, learned from the training examples, and the table that says how."""
    wanted = {"vocabulary": choose_vocabulary(corpus.counted.n_words), **given}
    settings = config.build(TokenizerConfig, wanted)
    every = max(1, corpus.counted.n_examples // TOKENIZER_EXAMPLES)
    columns = [[0, 1]] if settings.joint else [[0], [1]]
    learned = [
        train_tokenizer(
            (example[i] for example in islice(corpus.train(), 0, None, every) for i in together),
            settings,
            at_most="vocabulary" not in given,
        )
        for together in columns
    ]
    tokenizers = Tokenizers(learned[0], learned[-1])
    return wanted | {"vocabulary": len(tokenizers.target)}, tokenizers


def _stores(run: RunDirectory, corpus: Corpus, task: Task, *, resumed: bool) -> tuple[TokenStore, TokenStore]:
    """The token ids of training and validation, from disk where nothing changed."""
    mark = corpus.fingerprint(task.fingerprint)
    total = corpus.counted.n_examples
    train = _store(run.stores / "train", corpus.train(), task, mark, resumed=resumed, total=total)
    valid = _store(run.stores / "valid", corpus.valid(), task, mark, resumed=resumed)
    return train, valid


def _store(
    path: Path, examples: Iterator[Example], task: Task, mark: str, *, resumed: bool, total: int | None = None
) -> TokenStore:
    store = TokenStore.open(path, mark)
    if store is None and resumed and path.exists():
        raise CheckpointError(
            f"{path}: the data changed since this run began, so it cannot go on exactly; begin another run"
        )
    if store is None:
        store = write_store(path, examples, task, vocabulary=task.vocabulary, fingerprint=mark, total=total)
    if len(store) == 0:
        raise ConfigError(f"no examples left to {path.name} on; give more training data, or --valid files of their own")
    return store


def _refuse_early(given: config.Tables, device: torch.device, where: str) -> None:
    """Find values that no amount of data could make right, before any is read."""
    model = with_preset({"preset": "tiny", **given["model"]})
    likely: config.Tables = {
        "data": {"train": (), "max_length": choose.WIDTHS[0], **given["data"]},
        "tokenizer": {"vocabulary": choose_vocabulary(0), **given["tokenizer"]},
        "model": model,
        "train": choose.train_table(given["train"], 1_000_000, model["d_model"], device),
    }
    resolved(given | likely, where)


def _choose(
    given: config.Tables, tokenizer: config.Table, task: Task, train: TokenStore, device: torch.device
) -> config.Tables:
    """The recipe with a value for every key."""
    lengths = task.lengths(train)
    tokens = int(lengths[:, -1].sum(dtype=np.int64))
    model = with_preset({"preset": choose.preset(tokens, device), **given["model"]})
    return {
        "task": given["task"],
        "data": {"max_length": choose.row_width(lengths), **given["data"]},
        "tokenizer": tokenizer,
        "model": model,
        "train": choose.train_table(given["train"], tokens, model["d_model"], device),
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
