"""The training loop of regard over a store on disk, as a contender: what a run does between two log lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models

from regard.data.corpus import Corpus, DataConfig
from regard.data.order import PackedOrder
from regard.data.store import TokenStore
from regard.models.blocks import initialise_weights
from regard.models.config import ModelConfig
from regard.runs.recipe import RunConfig, TrainConfig
from regard.runs.run_directory import RunDirectory
from regard.tasks import Task
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_training import TokenizerConfig
from regard.training.loop import Trainer
from regard.training.prepare import PreparedRun

NEVER = 10**9
"""Number of steps that no benchmark reaches."""


def build_tokenizer(special_tokens: Sequence[str], vocabulary_size: int) -> Tokenizer:
    """Return a word-level tokenizer of `vocabulary_size` entries: the special tokens, then w0, w1, ..."""
    words = [*special_tokens, *(f"w{i}" for i in range(vocabulary_size - len(special_tokens)))]
    rust = RustTokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="w0"))
    rust.add_special_tokens(list(special_tokens))
    return Tokenizer(rust)


def write_store(folder: Path, task: Task, columns: Sequence[Any]) -> TokenStore:
    """Write encoded examples, one sequence of them per column of the task, to a store on disk."""
    return TokenStore.write(folder, task.store_columns, [list(columns)], fingerprint="")


def train_regard(
    task: Task, model_config: ModelConfig, store: TokenStore, options: argparse.Namespace, *, n_rows: int, length: int
) -> Iterator[int]:
    """Train on batches of `n_rows` packed rows of `length` tokens; yield the tokens of every `options.steps` steps."""
    device = torch.device(options.device)
    model = task.build_model(model_config)
    initialise_weights(model, torch.Generator().manual_seed(0), model_config.init_std)
    lengths = task.example_lengths(store)
    order = PackedOrder(lengths, [length] * lengths.shape[1], n_rows, seed=0)
    with TemporaryDirectory() as folder:
        corpus = _write_corpus(Path(folder), task, length)
        config = RunConfig(
            task.config,
            corpus.data,
            TokenizerConfig(vocabulary=options.vocabulary),
            model_config,
            _train_config(n_rows * length, options.steps, device),
        )
        run = RunDirectory(Path(folder))
        prepared = PreparedRun(
            run, config, task, model.to(device), order, order, store, store, device, corpus, chosen_settings={}
        )
        yield from _count_logged_tokens(Trainer(prepared))


def _write_corpus(folder: Path, task: Task, length: int) -> Corpus:
    """Return a corpus of an empty file, which a run needs but training on a store does not read."""
    path = folder / "unread.tsv"
    path.touch()
    data = DataConfig(train=(str(path),), max_length=length)
    return Corpus(task.make_reader(task.config, data), data, "benchmark")


def _train_config(batch_tokens: int, log_every: int, device: torch.device) -> TrainConfig:
    on_gpu = device.type == "cuda"
    return TrainConfig(
        steps=NEVER, batch_tokens=batch_tokens, learning_rate=1e-4, warmup=0, schedule="constant",
        log_every=log_every, validate_every=NEVER, save_every=NEVER,
        precision="bfloat16" if on_gpu else "float32", compiled=on_gpu,
    )  # fmt: skip


def _count_logged_tokens(trainer: Trainer) -> Iterator[int]:
    """Yield the tokens trained on between two log events; other events are not rounds."""
    tokens = 0
    for event in trainer.train():
        if event.kind == "interrupted":
            raise KeyboardInterrupt
        if event.kind == "log":
            yield event.values["tokens"] - tokens
            tokens = event.values["tokens"]
