"""The interface of a task, split by caller; a new task is one file beside this one and one line in tasks/__init__.py.

A new task implements, and nothing else:

    part                called by                    implement (may override)
    RecipeSchema        runs/, training/prepare.py   name, Config, architectures (defaults, check_recipe)
    VocabularyOwner     training/prepare.py, runs/   make_reader, from_corpus, load, save, vocabulary_size
    ExampleBatcher      training/prepare.py, loop    fingerprint, store_columns, encode, example_lengths, make_batch
                                                     (collect_training_statistics)
    TrainingObjective   training/loop.py, plan.py    build_model, compute_loss
    ValidationMetrics   training/validation.py       validation_metric, compute_validation_metrics (max_scored_examples)
                                                 (scoring_note, has_final_metrics, compute_final_metrics)
    InferenceModel      api/, runs/import_export.py  verb, tokenizers (labels, from_hf_checkpoint, prepare_for_export)

What a trained model does (translate, classify, tag, ...) is no part of this interface: it is a class of predict/, which
a task's `make_predictor` builds for the API and for its validation metrics. tests/training/test_new_task.py is a
complete task in sixty lines. A task knows nothing of optimisers, checkpoints or devices: those belong to the training
loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard.config import Table, Tables
from regard.data.columns import ColumnSpec, EncodedChunk
from regard.data.corpus import ENCODING_CHUNK_BYTES, SET_COLUMN, Corpus, DataConfig, Example, ExampleReader
from regard.data.labels import Labels
from regard.data.order import Placement
from regard.data.prefetch import Movable
from regard.data.store import TokenStore
from regard.errors import CheckpointError
from regard.models.architectures import Architectures
from regard.models.exchange import HFCheckpoint
from regard.nn import Loss
from regard.text.tokenizer import SEQ2SEQ_SPECIAL_TOKENS, Tokenizer, TokenizerPair
from regard.text.tokenizer_training import TokenizerConfig


@runtime_checkable
class TrainingBatch(Movable, Protocol):
    """The input of a loss: tensors that move to a device, the number of predicted tokens and of input tokens."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def n_input_tokens(self) -> int: ...


@dataclass(frozen=True)
class ValidationMetric:
    """The metric that decides which checkpoint is best, with its name for users.

    `key` is "valid_loss", which every task has, "valid_perplexity", which most have, or one of the task's own metrics.
    """

    key: str
    title: str
    higher_is_better: bool

    def is_improvement(self, value: float, best: float | None) -> bool:
        """Return True if the value is better than the best so far; NaN never is."""
        if value != value:
            return False
        return best is None or (value > best if self.higher_is_better else value < best)


@dataclass(frozen=True)
class TrainingScale:
    """The size of the training data, the width of the model, if it starts from a pre-trained one, and frozen."""

    n_examples: int
    n_tokens: int
    d_model: int
    is_finetuning: bool
    is_frozen: bool = False


class RecipeSchema:
    """The part of a task that is known before any text is read: its name, its recipe and its defaults.

    `Config` is the dataclass of ``[task]``; `inherited_config_keys` are the keys of it that a model passes on to one
    that is fine-tuned from it. `architectures` are the models that can do the task; with `starts_from_language_models`
    it may also start from a language model, whose layers become an encoder (models/lm_encoder.py). With `mixes_sets`
    the source of an example may decide how often it is drawn (`DataConfig.has_sets`).
    """

    name: ClassVar[str]
    Config: ClassVar[type]
    architectures: ClassVar[Architectures]
    default_tokenizer_kind: ClassVar[str] = "bpe"
    special_token_names: ClassVar[tuple[str, ...]] = SEQ2SEQ_SPECIAL_TOKENS
    inherited_config_keys: ClassVar[tuple[str, ...]] = ()
    starts_from_language_models: ClassVar[bool] = False
    mixes_sets: ClassVar[bool] = False

    @classmethod
    def training_defaults(cls, scale: TrainingScale, device: torch.device) -> dict[str, Any]:
        """Return defaults of ``[train]`` that differ from those of most tasks.

        "steps" may be a function of the tokens in a batch, and what depends on the number of steps a function of it,
        since a recipe may set either.
        """
        return {}

    @classmethod
    def default_task_config(cls, device: torch.device, model_table: Table) -> dict[str, Any]:
        """Return defaults of ``[task]`` that depend on the device or on ``[model]``."""
        return {}

    @classmethod
    def complete_task_table(cls, tables: Tables, user_table: Table, where: str) -> Table:
        """Return the ``[task]`` table with what follows from the others; `user_table` is what the user wrote of it."""
        return tables["task"]

    @classmethod
    def packs_texts(cls, task_table: Table) -> bool:
        """Return True if several texts may share a row; otherwise every text has a row of its own in training."""
        return True

    @classmethod
    def check_recipe(cls, tables: Tables, where: str) -> None:
        """Raise ConfigError where values of different tables contradict each other."""
        return


class VocabularyOwner(ABC):
    """The part of a task that reads its files and owns its vocabularies (and labels)."""

    @classmethod
    @abstractmethod
    def make_reader(cls, config: Any, data: DataConfig) -> ExampleReader:
        """Return the reader of the recipe's files."""

    @classmethod
    @abstractmethod
    def from_corpus(
        cls,
        config: Any,
        tokenizer_config: TokenizerConfig,
        corpus: Corpus,
        pretrained_tokenizer: Tokenizer | None = None,
    ) -> Task:
        """Return the task with vocabularies learned from the corpus, or that of the model it is fine-tuned from."""

    @classmethod
    @abstractmethod
    def load(cls, config: Any, tokenizer_config: TokenizerConfig, directory: Path) -> Task:
        """Return the task with the vocabularies that `save` wrote."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the vocabularies into the run directory."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """The size of the vocabulary, or of the larger one."""


class ExampleBatcher(ABC):
    """The part of a task that turns examples into the columns of a store, and stored examples into batches."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes when the encoding of a text does."""

    @property
    @abstractmethod
    def store_columns(self) -> Sequence[ColumnSpec]:
        """The columns of the store that `encode` fills."""

    @abstractmethod
    def encode(self, examples: Sequence[Example]) -> EncodedChunk:
        """Return the entries of each column of the store for these examples."""

    @property
    def encoding_chunk_bytes(self) -> int:
        """The bytes of text that `encode` is given at a time."""
        return ENCODING_CHUNK_BYTES

    def warn_about_encoded_data(self, store: TokenStore) -> None:
        """Warn about anomalies of the whole store; `encode` sees one chunk at a time."""
        return

    def collect_training_statistics(self, store: TokenStore) -> None:
        """Collect statistics of the training examples that batches depend on, such as word frequencies."""
        return

    @abstractmethod
    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """Return the number of positions each example takes on each side of a packed row."""

    def example_sets(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        """Return the number of the source of each example, where the corpus has them (`DataConfig.has_sets`)."""
        return store.values(SET_COLUMN)

    def row_width(self, lengths: Int[np.ndarray, "N sides"]) -> int | None:
        """Return the width of rows that suits these lengths; None for the default."""
        return None

    @abstractmethod
    def make_batch(self, store: TokenStore, placement: Placement) -> TrainingBatch:
        """Return the examples of a placement, packed into rows."""


class TrainingObjective(ABC):
    """The part of a task that is trained: the model and its loss.

    With `has_cacheable_features` the model reads the column "text" of the store, the same in every epoch, and its heads
    and metrics read hidden states without the ids, so that those of a frozen encoder can be computed once.
    """

    has_cacheable_features: bool = False

    @abstractmethod
    def build_model(self, config: Any) -> nn.Module:
        """Return the model, its weights not yet initialised."""

    @abstractmethod
    def compute_loss(self, model: Any, batch: Any) -> Loss:
        """Return the loss that training minimises."""


class ValidationMetrics(ABC):
    """The part of a task that scores a model during training.

    A task whose loss is no negative log-likelihood of text has no perplexity. `max_scored_examples` is the size of the
    sample that a validation scores, where scoring is slow; `example_unit` names the examples in messages. With
    `scores_start` a model that is fine-tuned is scored before its first step.
    """

    validation_metric: ValidationMetric
    has_perplexity: bool = True
    max_scored_examples: int | None = None
    scores_start: ClassVar[bool] = False
    example_unit: ClassVar[str] = "examples"

    @abstractmethod
    def compute_validation_metrics(
        self, model: Any, store: TokenStore, items: Int[np.ndarray, " items"], device: torch.device
    ) -> dict[str, float]:
        """Return the task's own metrics on these examples of the store, beside the loss."""

    @property
    def scoring_note(self) -> str:
        """The note of the plan on the metrics, if they need an explanation."""
        return ""

    @property
    def has_final_metrics(self) -> bool:
        """True if `compute_final_metrics` has any."""
        return False

    def compute_final_metrics(self, model: Any, corpus: Corpus, device: torch.device) -> dict[str, float]:
        """Return further metrics of the best weights, which need the validation text itself, at the end of training."""
        raise NotImplementedError

    def example_strata(self, store: TokenStore) -> Int[np.ndarray, " N"]:
        """Return the stratum of each example; a sample that is scored has as many of each, if there are so many."""
        return np.zeros(len(self.example_lengths(store)), dtype=np.int64)  # type: ignore[attr-defined]

    def example_text(self, store: TokenStore, item: int) -> str:
        """Return the text of a stored example, by whose hash a sample is drawn; needed with `max_scored_examples`."""
        raise NotImplementedError


class InferenceModel:
    """The part of a task that outlives training: the command for its models, and their exchange with other libraries.

    `verb` is the command that uses the model, and `verb_arguments` the form of its input after the model; with
    `has_evaluation`, `regard evaluate` scores it on test data. `export_problem` says why no other library could use the
    model, if that is so.
    """

    name: ClassVar[str]
    verb: str
    verb_arguments: ClassVar[str] = '"..."'
    has_evaluation: ClassVar[bool] = True
    tokenizers: TokenizerPair
    labels: Labels = Labels()
    export_problem: str = ""

    @classmethod
    def from_hf_checkpoint(cls, checkpoint: HFCheckpoint) -> Task:
        """Return the task of a model that another library trained."""
        raise CheckpointError(f"{checkpoint.weights.path}: a {checkpoint.family.name} cannot be used for {cls.name}")

    def prepare_for_export(self, model: Any) -> None:
        """Fold the task's transformation of the outputs into the weights, for libraries that know only the model."""
        return


class Task(RecipeSchema, VocabularyOwner, ExampleBatcher, TrainingObjective, ValidationMetrics, InferenceModel):
    """One kind of thing to learn from text: all parts of the interface."""

    def with_max_length(self, max_length: int) -> Task:
        """Return the task with inputs truncated to that many positions; the task itself if it cannot truncate them."""
        return self
