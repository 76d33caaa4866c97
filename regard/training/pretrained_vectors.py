"""Static word vectors that a model starts from: its vocabulary, its width and its token embeddings.

Tokens that spell a whole word, as all do in a vocabulary of words, get the vector of that word; the others start from
random vectors. A vocabulary of words also includes those of the vectors, so that words absent from the training data
are known as well. Called by recipe_completion.py and prepare.py when a run begins.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard import config
from regard.data.columns import Column
from regard.data.store import TokenStore
from regard.data.word_vectors import WordVectorTable
from regard.errors import ConfigError
from regard.nn import TokenEmbedding
from regard.progress import print_message
from regard.runs.model_loading import has_word_vectors, open_word_vectors
from regard.tasks import Task
from regard.tasks.shared.single_tokenizer import SingleTokenizerTask
from regard.text.tokenizer import Tokenizer, TokenizerPair
from regard.text.word_tokenizer import add_words

ARCHITECTURES = ("static", "rnn")
"""Architectures whose first layer takes word vectors; a task without the first takes the second."""

MAX_WORDS = 100_000
"""Maximum number of words of a vocabulary, unless the recipe sets it."""


@dataclass(frozen=True)
class PretrainedVectors:
    """Word vectors to start from."""

    path: str
    table: WordVectorTable

    def complete_recipe(self, tables: config.Tables, task_class: type[Task], where: str) -> config.Tables:
        """Return the recipe with the width of the vectors, an architecture that takes them, and words as tokens."""
        model, tokenizer = tables.get("model", {}), tables.get("tokenizer", {})
        known = [name for name in ARCHITECTURES if name in task_class.architectures]
        architecture = model.get("architecture", known[0] if known else "")
        if architecture not in known:
            accepted = f"pass --architecture {' or '.join(known)}" if known else "leave out --from"
            named = f"a {architecture}" if architecture else "a model"
            raise ConfigError(f"{where}: {task_class.name} cannot start {named} from word vectors; {accepted}")
        if model.get("d_model", self.table.width) != self.table.width:
            description = f"the vectors of {self.path} have {self.table.width} numbers"
            problem = f"model.d_model = {model['d_model']}, but {description}"
            raise ConfigError(f"{where}: {problem}; leave it out")
        width = {"architecture": architecture, "d_model": self.table.width}
        return {**tables, "model": {**model, **width}, "tokenizer": {**self._word_tokenizer(task_class), **tokenizer}}

    def _word_tokenizer(self, task_class: type[Task]) -> dict[str, Any]:
        """Return the ``[tokenizer]`` keys of a task that only reads; one that writes text keeps its subwords."""
        if not issubclass(task_class, SingleTokenizerTask):
            return {}
        return {"kind": "words", **({"lowercase": True} if self.table.is_lowercase else {})}

    def extend_vocabulary(self, task: Task, recipe_table: config.Table) -> Task:
        """Return the task with the words of the vectors in its vocabulary of words, unless the recipe sets its size."""
        is_limited = recipe_table.get("kind") != "words" or "vocabulary" in recipe_table
        if is_limited or not isinstance(task, SingleTokenizerTask):
            return task
        extended = copy(task)
        extended.tokenizer = add_words(task.tokenizer, self.table.words, MAX_WORDS)
        extended.tokenizers = TokenizerPair(extended.tokenizer, extended.tokenizer)
        return extended

    def load_into(self, model: nn.Module, task: Task, train_store: TokenStore) -> None:
        """Copy the vectors into the input embeddings, and report how much of the text they cover."""
        sides = {"embedding": task.tokenizers.source, "source_embedding": task.tokenizers.source}
        if task.tokenizers.is_joint:
            sides["target_embedding"] = task.tokenizers.target
        modules = dict(model.named_children())
        embeddings = {name: tokenizer for name, tokenizer in sides.items() if name in modules}
        for name, tokenizer in embeddings.items():
            covered = self._copy_vectors(modules[name], tokenizer)
        column = next(iter(train_store.columns))
        print_message(f"{self.path}: {describe_coverage(covered, train_store[column], tokenizer)}")

    @torch.no_grad()
    def _copy_vectors(self, embedding: Any, tokenizer: Tokenizer) -> np.ndarray:
        """Copy the vectors of the words that the vocabulary has; return which tokens have one.

        Vectors are scaled together so that their numbers have the mean square of random ones, for which learning rates
        are chosen; their directions, and the ratios of their lengths, stay.
        """
        assert isinstance(embedding, TokenEmbedding), type(embedding)
        rows = np.array([self._find(tokenizer.word_of_token(index)) for index in range(len(tokenizer))])
        covered: np.ndarray = rows >= 0
        vectors = torch.from_numpy(self.table.vectors[rows[covered]])
        weight = embedding.tokens.weight
        if len(vectors):
            weight[torch.from_numpy(covered)] = vectors * (_root_mean_square(weight) / _root_mean_square(vectors))
        return covered

    def _find(self, word: str | None) -> int:
        """Return the row of a word, as it is written or in lower case; -1 if it has none."""
        if word is None:
            return -1
        return self.table.index.get(word, self.table.index.get(word.lower(), -1))


def _root_mean_square(values: Tensor) -> float:
    return max(1e-12, float(values.double().square().mean().sqrt()))


def describe_coverage(covered: np.ndarray, column: Column, tokenizer: Tokenizer) -> str:
    """Return how many tokens of the vocabulary have a vector, and how many of the text's, special ones left out."""
    counts = column.count_ids(len(covered))
    unknown = tokenizer.find_special_id("unknown")
    counts[[index for index in tokenizer.special_ids if index != unknown]] = 0
    n_tokens = len(covered) - len(tokenizer.special_ids)
    fraction = counts[covered].sum() / max(1, counts.sum())
    return f"vectors for {covered.sum():,} of {n_tokens:,} tokens, which are {fraction:.1%} of the training text"


def load_pretrained_vectors(start: object) -> PretrainedVectors | None:
    """Return the word vectors that ``model.start`` names; None if it names a model, or nothing."""
    if not isinstance(start, str) or not start or not has_word_vectors(Path(start)):
        return None
    return PretrainedVectors(start, open_word_vectors(Path(start)))
