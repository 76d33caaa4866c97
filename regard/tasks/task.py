"""What the training loop asks of a task; a new task is one file beside this one and one line in tasks/__init__.py.

A task knows its files, its vocabularies, its batches, its model, its loss and its metrics. It knows nothing of
optimisers, checkpoints or devices: those are the loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard.config import Table, Tables
from regard.data.columns import ColumnSpec, EncodedChunk
from regard.data.corpus import Corpus, DataConfig, Example, ExampleReader
from regard.data.order import Placement
from regard.data.prefetch import Movable
from regard.data.store import TokenStore
from regard.errors import CheckpointError
from regard.models.architectures import Architectures
from regard.models.exchange import HFCheckpoint
from regard.nn import Loss
from regard.tasks.shared.labels import Labels
from regard.text.tokenizer import SEQ2SEQ_SPECIAL_TOKENS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig


@runtime_checkable
class TrainingBatch(Movable, Protocol):
    """What a loss takes: tensors that can move to a device, how many tokens it will count, and how many are read."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def n_input_tokens(self) -> int: ...


@dataclass(frozen=True)
class ValidationMetric:
    """The validation metric that decides which checkpoint is best, and what people call it.

    It is "valid_loss", which every task has, "valid_perplexity", which most have, or one of the task's own scores.
    """

    key: str
    title: str
    higher_is_better: bool

    def is_improvement(self, value: float, best: float | None) -> bool:
        """A value better than the best so far."""
        if value != value:
            return False
        return best is None or (value > best if self.higher_is_better else value < best)


@dataclass(frozen=True)
class TrainingScale:
    """How much there is to learn from, how wide the model is, and whether it starts from a trained one."""

    n_examples: int
    n_tokens: int
    d_model: int
    is_finetuning: bool


class Task(ABC):
    """One kind of thing to learn from text; `name` says it in a recipe, `verb` is the command that uses the model.

    `families` are the models that can do it. `pieces` is the kind of vocabulary it learns where a recipe does not say,
    and `specials` are the special tokens in it. `unit` says what its examples are. `inherited` are the keys of
    ``[task]`` that a model hands on to one that starts from it. Where the loss is no likelihood of text, a task has no
    perplexity. `scored` is how many examples a validation scores at most, where one takes long.
    """

    name: ClassVar[str]
    verb: str
    Config: ClassVar[type]
    architectures: ClassVar[Architectures]
    default_tokenizer_kind: ClassVar[str] = "bpe"
    special_token_names: ClassVar[tuple[str, ...]] = SEQ2SEQ_SPECIAL_TOKENS
    unit: ClassVar[str] = "examples"
    examples_have_lines: ClassVar[bool] = False
    inherited_config_keys: ClassVar[tuple[str, ...]] = ()
    validation_metric: ValidationMetric
    tokenizers: TokenizerPair
    labels: Labels = Labels()
    has_perplexity: bool = True
    max_scored_examples: ClassVar[int | None] = None

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        """Keys of ``[train]`` that suit this task where a recipe leaves them out, other than those of most tasks.

        What follows from the number of steps is a function of it, and that number one of the tokens in a batch, for a
        recipe may ask for more or fewer.
        """
        return {}

    @classmethod
    def default_task_config(cls, device: torch.device, model_table: Table) -> dict[str, Any]:
        """Keys of ``[task]`` that suit a device and a ``[model]`` better than their defaults do, where left out."""
        return {}

    @classmethod
    def check_recipe(cls, tables: Tables, where: str) -> None:
        """Refuse values of different tables of a recipe that do not go together."""
        return

    @classmethod
    def make_reader(cls, config: Any, data: DataConfig) -> ExampleReader:
        """What reads the files of a recipe: the task, or what its table makes of it."""
        return cls

    @staticmethod
    @abstractmethod
    def paths(data: Sequence[str]) -> list[Path]:
        """The files that `read` would read."""

    @staticmethod
    @abstractmethod
    def read_examples(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        """The examples in the files, in order."""

    @classmethod
    @abstractmethod
    def from_corpus(
        cls,
        config: Any,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> Task:
        """The task with vocabularies learned from the corpus, smaller than asked where it is too small for that.

        `ready` is the vocabulary of the model that training starts from, if it starts from one.
        """

    @classmethod
    @abstractmethod
    def load(cls, config: Any, tokenizer_config: TokenizerConfig, directory: Path) -> Task:
        """The task with the vocabularies that `save` wrote."""

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> Task:
        """The task of a model that another library trained."""
        raise CheckpointError(f"{checkpoint.weights.path}: a {checkpoint.family.name} cannot be used for {cls.name}")

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the vocabularies into the run directory."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the ids of a text would."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """No token id is as large as this."""

    def with_max_length(self, max_length: int) -> Task:
        """The task as it encodes texts where a row or a model takes so many positions; not all tasks can cut theirs."""
        return self

    @property
    @abstractmethod
    def store_columns(self) -> Sequence[ColumnSpec]:
        """The columns of the store that `encode` fills."""

    @abstractmethod
    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        """Return the entries of each column of the store for these examples."""

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        """Warn of what is unusual in all that was encoded; `encode` sees a part of it at a time."""
        return

    @abstractmethod
    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """How many positions each example takes on each side of a packed row."""

    def row_width(self, lengths: Int[np.ndarray, "N sides"]) -> int | None:
        """How wide rows should be; None leaves the choice."""
        return None

    @abstractmethod
    def make_batch(self, store: TokenStore, placement: Placement) -> TrainingBatch:
        """The placed examples laid into rows."""

    @abstractmethod
    def build_model(self, config: Any) -> nn.Module:
        """The model, its weights not yet drawn."""

    @abstractmethod
    def compute_loss(self, model: Any, batch: Any) -> Loss:
        """What training minimises."""

    @abstractmethod
    def compute_validation_metrics(
        self, model: Any, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return the task's own metrics on these examples of the store, beside the loss."""

    def example_text(self, store: TokenStore, item: int) -> str:
        """Return the text of a stored example, by whose hash a sample is drawn; needed with `max_scored_examples`."""
        raise NotImplementedError

    def prepare_for_export(self, model: Any) -> None:
        """Make the model's own outputs what the task would make of them, for libraries that know only the model."""
        return
