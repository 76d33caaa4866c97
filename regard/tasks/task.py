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
from regard.data.corpus import Corpus, DataConfig, Example, Reader
from regard.data.order import Placement
from regard.data.prefetch import Movable
from regard.data.store import TokenStore
from regard.errors import CheckpointError
from regard.models.exchange import Found
from regard.models.families import Families
from regard.nn import Loss
from regard.tasks.labels import Labels
from regard.text.tokenizer import SPECIALS, Tokenizer, Tokenizers
from regard.text.vocabulary import TokenizerConfig


@runtime_checkable
class Batch(Movable, Protocol):
    """What a loss takes: tensors that can move to a device, how many tokens it will count, and how many are read."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def n_read(self) -> int: ...


@dataclass(frozen=True)
class Goal:
    """The validation metric that decides which checkpoint is best, and what people call it.

    It is "valid_loss", which every task has, "valid_perplexity", which most have, or one of the task's own scores.
    """

    metric: str
    label: str
    higher_is_better: bool

    def improves(self, value: float, best: float | None) -> bool:
        """A value better than the best so far."""
        if value != value:
            return False
        return best is None or (value > best if self.higher_is_better else value < best)


@dataclass(frozen=True)
class Amount:
    """How much there is to learn from, how wide the model is, and whether it starts from a trained one."""

    n_examples: int
    n_tokens: int
    d_model: int
    started: bool


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
    families: ClassVar[Families]
    pieces: ClassVar[str] = "bpe"
    specials: ClassVar[tuple[str, ...]] = SPECIALS
    columns: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = "examples"
    inherited: ClassVar[tuple[str, ...]] = ()
    goal: Goal
    tokenizers: Tokenizers
    labels: Labels = Labels()
    has_perplexity: bool = True
    scored: ClassVar[int | None] = None

    @classmethod
    def habits(cls, amount: Amount, device: torch.device) -> dict[str, Any]:
        """Keys of ``[train]`` that suit this task where a recipe leaves them out, other than those of most tasks.

        What follows from the number of steps is a function of it, and that number one of the tokens in a batch, for a
        recipe may ask for more or fewer.
        """
        return {}

    @classmethod
    def usual(cls, device: torch.device, model: Table) -> dict[str, Any]:
        """Keys of ``[task]`` that suit a device and a ``[model]`` better than their defaults do, where left out."""
        return {}

    @classmethod
    def check(cls, given: Tables, where: str) -> None:
        """Refuse values of different tables of a recipe that do not go together."""
        return

    @classmethod
    def reader(cls, config: Any, data: DataConfig) -> Reader:
        """What reads the files of a recipe: the task, or what its table makes of it."""
        return cls

    @staticmethod
    @abstractmethod
    def paths(data: Sequence[str]) -> list[Path]:
        """The files that `read` would read."""

    @staticmethod
    @abstractmethod
    def read(data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        """The examples in the files, in order."""

    @classmethod
    @abstractmethod
    def learn(cls, config: Any, tokenizer: TokenizerConfig, corpus: Corpus, ready: Tokenizer | None = None) -> Task:
        """The task with vocabularies learned from the corpus, smaller than asked where it is too small for that.

        `ready` is the vocabulary of the model that training starts from, if it starts from one.
        """

    @classmethod
    @abstractmethod
    def load(cls, config: Any, tokenizer: TokenizerConfig, directory: Path) -> Task:
        """The task with the vocabularies that `save` wrote."""

    @classmethod
    def adopt(cls, found: Found) -> Task:
        """The task of a model that another library trained."""
        raise CheckpointError(f"{found.file.where}: a {found.family.name} cannot be used for {cls.name}")

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the vocabularies into the run directory."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the ids of a text would."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """No token id is as large as this."""

    @property
    def limit(self) -> int:
        """No number that `encode` gives is as large as this."""
        return self.vocabulary

    def within(self, most: int) -> Task:
        """The task as it encodes texts where a row or a model takes so many positions; not all tasks can cut theirs."""
        return self

    @abstractmethod
    def encode(self, examples: Sequence[Example]) -> list[list[list[int]]]:
        """Token ids, one list of texts for each column."""

    def remark(self, store: TokenStore) -> None:
        """Warn of what is unusual in all that was encoded; `encode` sees a part of it at a time."""
        return

    @abstractmethod
    def lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """How many positions each example takes on each side of a packed row."""

    def width(self, lengths: Int[np.ndarray, "N sides"]) -> int | None:
        """How wide rows should be; None leaves the choice."""
        return None

    @abstractmethod
    def batch(self, store: TokenStore, placement: Placement) -> Batch:
        """The placed examples laid into rows."""

    @abstractmethod
    def build(self, config: Any) -> nn.Module:
        """The model, its weights not yet drawn."""

    @abstractmethod
    def loss(self, model: Any, batch: Any) -> Loss:
        """What training minimises."""

    @abstractmethod
    def score(self, model: Any, store: TokenStore, device: torch.device) -> dict[str, float]:
        """The task's own validation metrics beside the loss, on a few hundred examples at most."""

    def plain(self, model: Any) -> None:
        """Make the model's own outputs what the task would make of them, for libraries that know only the model."""
        return
