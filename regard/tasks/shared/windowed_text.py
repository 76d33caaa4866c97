"""Base class of the tasks that read plain text in windows: documents, the column of their tokens, windows of them.

Language models (lm.py) and word vectors (vectors.py) build on this; data/lm_windows.py makes the windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from regard.data.columns import TokenColumnSpec
from regard.data.corpus import MIN_ROW_WIDTH, Example, ExampleReader
from regard.data.lm_windows import LanguageModelWindows, cut_windows
from regard.data.store import TokenStore
from regard.ranges import Range
from regard.tasks.shared.single_tokenizer import SingleTokenizerTask, refuse_columns
from regard.text.documents import document_paths, read_document_chunks

WINDOW_LENGTHS = Range(MIN_ROW_WIDTH, (1 << 15) - 1)
"""Accepted values of ``task.length``."""


@dataclass(frozen=True)
class DocumentChunkReader(ExampleReader):
    """The documents of files; of little text in parts so short that some can be held out."""

    unit = "documents, and parts of long ones"
    examples_have_lines = False
    one_per_file: bool = False
    split_if_few: bool = True

    @staticmethod
    def paths(data: Sequence[str]) -> list[Path]:
        return document_paths(data)

    def read_examples(self, data: Sequence[str], columns: Sequence[str], *, skip_empty: bool) -> Iterator[Example]:
        refuse_columns(columns)
        return read_document_chunks(data, one_document_per_file=self.one_per_file, ensure_min_chunks=self.split_if_few)


class WindowedTextTask(SingleTokenizerTask):
    """A task on plain text, which is read in windows of `length` tokens."""

    @property
    def store_columns(self) -> tuple[TokenColumnSpec]:
        return (TokenColumnSpec("text", self.vocabulary_size),)

    def cut_windows(self, store: TokenStore) -> LanguageModelWindows:
        """Return the windows of the stored text."""
        return cut_windows(store, "text", self.max_length)

    def example_lengths(self, store: TokenStore) -> Int[np.ndarray, "N sides"]:
        """Return the lengths of the windows."""
        lengths: Int[np.ndarray, "N 1"] = self.cut_windows(store).lengths[:, None]
        return lengths

    def row_width(self, lengths: Int[np.ndarray, "N sides"]) -> int:
        """Return the length of windows, or that of the whole text if it is shorter."""
        return max(MIN_ROW_WIDTH, min(self.max_length, int(lengths.sum())))
