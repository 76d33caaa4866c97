"""Static word vectors: the vector of a word, nearest words and analogies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.api.inputs import check_texts
from regard.data.word_vectors import WordVectorTable, write_word_vectors
from regard.errors import InputError, did_you_mean
from regard.ranges import COUNT_RANGE, check_option
from regard.runs.recipe import RunConfig
from regard.runs.run_directory import RunDirectory
from regard.runs.training_summary import summarise_training
from regard.tasks import Task
from regard.tasks.vectors import WordVectorTask

SIGN_PATTERN = re.compile(r"\s+([+-])\s+")
"""The signs of an expression such as ``king - man + woman``: between spaces, since a word may have a hyphen."""


class WordHit(NamedTuple):
    """A word found by `nearest` or `analogy`: its cosine with what was asked, and itself."""

    score: float
    word: str


class WordVectors:
    """Static word vectors, trained by `regard train vectors` or read from a word2vec or GloVe file.

    Attributes:
        path: The run directory or file they were loaded from.
        words: The words; of a run, the most frequent first.
        vectors: A float32 array (words, width).

    Example:
        >>> vectors = regard.load("runs/vectors")
        >>> [hit.word for hit in vectors.nearest("king", top=3)]
        >>> vectors.analogy("man", "king", "woman")[0].word
    """

    task: ClassVar[type[Task]] = WordVectorTask

    def __init__(self, path: Path, table: WordVectorTable, run_config: RunConfig | None = None) -> None:
        self.path, self.config, self._table = path, run_config, table
        norms = np.linalg.norm(table.vectors, axis=1, keepdims=True)
        self._unit_vectors = table.vectors / np.maximum(norms, 1e-30)

    @classmethod
    def load(cls, path: str | Path) -> WordVectors:
        """Load word vectors; refuse a model of another kind.

        Args:
            path: A run directory of `regard train vectors`, or a file in word2vec's text or binary format (.bin), or in
                GloVe's.
        """
        from regard.api.loading import load

        model = load(path, device="cpu")
        if not isinstance(model, cls):
            class_name = type(model).__name__
            raise InputError(f"{path}: a {class_name}, not {cls.__name__}; load it with regard.{class_name}.load")
        return model

    def __repr__(self) -> str:
        return f"WordVectors({str(self.path)!r}, {len(self.words):,} words, width {self._table.width})"

    def __contains__(self, word: str) -> bool:
        return word in self._table.index

    @property
    def words(self) -> Sequence[str]:
        return self._table.words

    @property
    def vectors(self) -> np.ndarray:
        return self._table.vectors

    def info(self) -> dict[str, Any]:
        """Return what these vectors are and, for a run, how they were made."""
        about = {"task": WordVectorTask.name, "words": len(self.words), "width": self._table.width}
        if self.config is None:
            return {**about, "training": {}}
        training = summarise_training(RunDirectory(self.path), self.config, WordVectorTask.validation_metric)
        return {**about, "config": self.config.applicable_tables(), "training": training}

    def embed(self, words: str | Sequence[str]) -> np.ndarray:
        """Return the vector of a word (width,), or of each word of a list (words, width).

        Args:
            words: A word, or words; one that has no vector as it is written is looked up in lower case.
        """
        rows = [self._find(word) for word in check_texts([words] if isinstance(words, str) else words)]
        vectors: np.ndarray = self.vectors[rows[0] if isinstance(words, str) else rows]
        return vectors

    def match(self, first: str, second: str) -> float:
        """Return the similarity of two words or expressions: the cosine of their vectors, from -1 to 1.

        Args:
            first: A word, or an expression such as "king - man + woman".
            second: The one to compare it with.
        """
        return float(self._query(first)[0] @ self._query(second)[0])

    def nearest(self, query: str, top: int = 10) -> list[WordHit]:
        """Return the words nearest to a word or an expression, without those in it.

        An expression adds and subtracts vectors of length 1 (Mikolov et al. 2013).

        Args:
            query: A word, or an expression such as "king - man + woman", with spaces around the signs.
            top: The number of words to return.

        Returns:
            A list of `WordHit`, best first: `score` (cosine) and `word`.
        """
        check_option("top", top, COUNT_RANGE)
        vector, rows = self._query(query)
        scores = self._unit_vectors @ vector
        scores[rows] = -np.inf
        n_hits = min(top, len(scores) - len(set(rows)))
        best = np.argsort(-scores, kind="stable")[:n_hits]
        return [WordHit(float(scores[row]), self.words[row]) for row in best.tolist()]

    def analogy(self, first: str, second: str, third: str, top: int = 10) -> list[WordHit]:
        """Complete an analogy: `first` is to `second` as `third` is to the words returned.

        Args:
            first, second, third: Words, as in "man", "king", "woman".
            top: The number of words to return.
        """
        return self.nearest(f"{second} - {first} + {third}", top)

    def save(self, path: str | Path) -> Path:
        """Write the vectors in word2vec's format: binary if the name ends in .bin, else text."""
        write_word_vectors(Path(path), self._table)
        return Path(path)

    def _query(self, expression: str) -> tuple[Float[np.ndarray, " D"], list[int]]:
        """Return the unit vector of an expression, and the rows of its words."""
        first, *rest = SIGN_PATTERN.split(expression.strip())
        words, coefficients = [first, *rest[1::2]], [1.0, *(1.0 if sign == "+" else -1.0 for sign in rest[::2])]
        rows = [self._find(word) for word in words]
        total = np.array(coefficients, dtype=np.float32) @ self._unit_vectors[rows]
        return total / max(float(np.linalg.norm(total)), 1e-30), rows

    def _find(self, word: str) -> int:
        index = self._table.index
        row = index.get(word, index.get(word.lower()))
        if row is None:
            raise InputError(f"'{word}' has no vector here; {self._suggest(word)}")
        return row

    def _suggest(self, word: str) -> str:
        close = did_you_mean(word.lower(), self.words[:20_000])
        return close if close.startswith("did you mean") else f"{len(self.words):,} words have"
