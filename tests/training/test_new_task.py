"""A complete new task, as an example and as a test: one column, one tokenizer, perplexity as its only metric.

It implements the parts listed in regard/tasks/task.py, is registered by one line, as those in regard/tasks/__init__.py
are, and is trained by the same loop and the same command. Nothing of it is known to the rest of the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from tiny_runs import TINY, contents, digits, merged, ready, trained
from torch import Tensor, nn

from regard import config
from regard.cli import main
from regard.data.batches import Rows, TensorDataclass, build_rows
from regard.data.columns import TokenColumnSpec
from regard.data.corpus import Corpus, DataConfig, Example
from regard.data.order import Placement
from regard.data.store import TokenStore
from regard.models.architectures import SEQ2SEQ_MODELS
from regard.models.config import TransformerSeq2SeqConfig
from regard.nn import IGNORE, Loss, cross_entropy
from regard.runs.run_directory import RunDirectory
from regard.tasks import TASKS, Task
from regard.tasks.task import ValidationMetric
from regard.text.files import read_lines
from regard.text.tokenizer import EOS, PAD, SOS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer
from regard.training.loop import Trainer


@dataclass(frozen=True, kw_only=True)
class LinesConfig:
    name: Literal["lines"] = "lines"
    noise: float = 0.0


@dataclass(frozen=True)
class LineBatch(TensorDataclass):
    rows: Rows
    labels: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_input_tokens(self) -> int:
        return self.n_tokens


class BigramModel(nn.Module):
    """A model that predicts the next token from the current one alone."""

    def __init__(self, config: TransformerSeq2SeqConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary_size, config.d_model)
        self.out = nn.Linear(config.d_model, vocabulary_size)

    def forward(self, rows: Rows) -> Float[Tensor, "B T V"]:
        return self.out(self.embedding(rows.ids))


class LineReader:
    """Reader of lines, one example each."""

    unit = "lines"
    examples_have_lines = False

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return [Path(file) for file in data]

    @staticmethod
    def group_sources(data: Sequence[str]) -> list[list[str]]:
        return [[entry] for entry in data]

    @staticmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        return ((line,) for file in data for line in read_lines(file))


class BigramTask(Task):
    """Bigram language modelling of lines; with `noise`, random tokens are left out of the loss, as in masked LM."""

    name, verb = "lines", "continue"
    Config, architectures = LinesConfig, SEQ2SEQ_MODELS
    validation_metric = ValidationMetric("valid_perplexity", "perplexity", higher_is_better=False)

    def __init__(self, config: LinesConfig, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.tokenizers = TokenizerPair(tokenizer, tokenizer)

    @classmethod
    def make_reader(cls, config: LinesConfig, data: DataConfig) -> LineReader:
        return LineReader()

    @classmethod
    def from_corpus(
        cls,
        config: LinesConfig,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> BigramTask:
        return cls(config, train_tokenizer(corpus.train_texts(0), tokenizer_config))

    @classmethod
    def load(cls, config: LinesConfig, tokenizer_config: TokenizerConfig, directory: Path) -> BigramTask:
        return cls(config, Tokenizer.load(directory / "tokenizer.json"))

    def save(self, directory: Path) -> None:
        self.tokenizer.save(directory / "tokenizer.json")

    @property
    def fingerprint(self) -> str:
        return self.tokenizer.fingerprint

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    @property
    def store_columns(self) -> tuple[TokenColumnSpec]:
        return (TokenColumnSpec("line", self.vocabulary_size),)

    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        return [self.tokenizer.encode_batch([line for (line,) in examples])]

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        return store.lengths("line", n_special_tokens=1)

    def make_batch(self, store: TokenStore, placement: Placement) -> LineBatch:
        rows = build_rows(store["line"], placement, *placement.widths, prefix_id=SOS, pad_id=PAD)
        targets = build_rows(store["line"], placement, *placement.widths, suffix_id=EOS, pad_id=IGNORE)
        return LineBatch(rows, targets.ids.long(), int((targets.segment > 0).sum()))

    def build_model(self, config: TransformerSeq2SeqConfig) -> BigramModel:
        return BigramModel(config, self.vocabulary_size)

    def compute_loss(self, model: BigramModel, batch: LineBatch) -> Loss:
        ignored = torch.rand(batch.labels.shape, device=batch.labels.device) < self.config.noise
        return cross_entropy(model(batch.rows), batch.labels.masked_fill(ignored, IGNORE))

    def compute_validation_metrics(
        self, model: BigramModel, store: TokenStore, items: np.ndarray, device: torch.device
    ) -> dict[str, float]:
        return {}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "lines", BigramTask)


def recipe(folder: Path, *changes: config.Tables) -> config.Tables:
    file = folder / "lines.txt"
    file.write_text("".join(f"{line}\n" for line, _ in digits(60)))
    train = {"steps": 12, "validate_every": 2, "save_every": 3, "learning_rate": 3e-2, "average": 3}
    return merged(TINY, {"task": {"name": "lines"}, "data": {"train": [str(file)]}, "train": train}, *changes)


def log_of(out: Path, key: str) -> list[float]:
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line[key] for line in log if key in line]


def test_best_checkpoint_has_the_lowest_perplexity(tmp_path: Path) -> None:
    events = trained(recipe(tmp_path), tmp_path / "run")
    seen = log_of(tmp_path / "run", "valid_perplexity")
    assert seen[-1] < 0.5 * seen[0]
    seen += [event.values["valid_perplexity"] for event in events if event.kind == "average"]
    assert events[-1].values["valid_perplexity"] == min(seen)
    settings, task, model = RunDirectory(tmp_path / "run").load()
    assert (settings.task.name, settings.tokenizer.vocabulary) == ("lines", 266)
    assert isinstance(task, BigramTask)
    assert isinstance(model, BigramModel)


@pytest.mark.parametrize("events", [1, 5, 9])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, events: int) -> None:
    tables = recipe(tmp_path, {"task": {"noise": 0.3}})
    trained(tables, tmp_path / "whole")
    run = Trainer(ready(tables, tmp_path / "left")).train()
    for _ in range(events):
        next(run)
    run.close()
    trained(tables, tmp_path / "left", resume=True)
    assert contents(tmp_path / "left") == contents(tmp_path / "whole")


def test_validation_draws_the_same_noise_each_time(tmp_path: Path) -> None:
    trained(recipe(tmp_path, {"task": {"noise": 0.5}, "train": {"learning_rate": 1e-12}}), tmp_path / "run")
    seen = log_of(tmp_path / "run", "valid_loss")
    assert len(seen) == 6
    assert seen == pytest.approx([seen[0]] * 6, rel=1e-6)


def test_command_line_trains_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [
        f"{name}.{key}={json.dumps(value)}" for name, table in recipe(tmp_path).items() for key, value in table.items()
    ]
    command = ["train", "lines", str(tmp_path / "lines.txt"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    with pytest.raises(SystemExit) as ended:
        main([*command, *(word for setting in settings for word in ("--set", setting))])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (0, f"{tmp_path}/run\n"), err
    assert "done: perplexity " in err
    assert re.search(rf"^use it: .* continue {tmp_path}/run ", err, re.MULTILINE)
    with pytest.raises(SystemExit):
        main([*command, "--resume"])
    assert "nothing to do: this run ended at step 12" in capsys.readouterr().err


def test_resuming_reads_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = recipe(tmp_path)
    one = ready(tables, tmp_path / "run")

    def read(*_: Any, **__: Any) -> Iterator[Example]:
        raise AssertionError("the text is read")

    monkeypatch.setattr(LineReader, "read_examples", staticmethod(read))
    two = ready(tables, tmp_path / "run", resume=True)
    assert (len(one.train_store), len(one.valid_store)) == (len(two.train_store), len(two.valid_store)) == (57, 3)
