"""What the tasks with one vocabulary share: it is one file of a run, and texts are cut to what a model takes.

Language models (lm.py) and all that reads with an encoder (reading.py) build on this; translate.py may have two.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from regard.data.corpus import SHORTEST_ROW
from regard.errors import ConfigError
from regard.tasks.task import Task
from regard.text.tokenizer import FILE, Tokenizer, Tokenizers


class Single(Task):
    """A task with one vocabulary; its inputs are cut to `length` tokens."""

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.tokenizers = Tokenizers(tokenizer, tokenizer)
        self.length: int = config.length

    def save(self, directory: Path) -> None:
        self.tokenizer.save(directory / FILE)

    @property
    def fingerprint(self) -> str:
        return f"{self.tokenizer.fingerprint} {self.config!r}"

    @property
    def vocabulary(self) -> int:
        return len(self.tokenizer)

    def within(self, most: int) -> Single:
        if most < SHORTEST_ROW:
            raise ConfigError(f"model.n_positions = {most}; expected at least {SHORTEST_ROW}")
        shorter = copy(self)
        shorter.length = min(self.length, most)
        return shorter


def check_length(length: int, lengths: range) -> None:
    """Refuse a ``task.length`` that no text can be cut to."""
    if length not in lengths:
        raise ConfigError(f"task.length = {length}; expected {lengths[0]} to {lengths[-1]:,} tokens")


def refuse_columns(columns: Sequence[str]) -> None:
    """Of plain text nobody can ask for columns."""
    if columns:
        raise ConfigError(f"columns: {', '.join(columns)}: plain text is read here, which has none; leave them out")
