"""Base class of the tasks with one vocabulary: its file, its fingerprint, the maximum length of inputs.

Tasks on long text (windowed_text.py) and on an encoder (encoder_task.py) build on this; translate.py may have two.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from regard.data.corpus import MIN_ROW_WIDTH
from regard.errors import ConfigError
from regard.tasks.task import Task
from regard.text.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerPair


class SingleTokenizerTask(Task):
    """A task with one vocabulary; its inputs are truncated to `length` tokens."""

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.tokenizers = TokenizerPair(tokenizer, tokenizer)
        self.max_length: int = config.length

    def save(self, directory: Path) -> None:
        self.tokenizer.save(directory / TOKENIZER_FILE)

    @property
    def fingerprint(self) -> str:
        return f"{self.tokenizer.fingerprint} {self.config!r}"

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokenizer)

    def with_max_length(self, max_length: int) -> SingleTokenizerTask:
        if max_length < MIN_ROW_WIDTH:
            raise ConfigError(f"model.n_positions = {max_length}; expected at least {MIN_ROW_WIDTH}")
        shorter = copy(self)
        shorter.max_length = min(self.max_length, max_length)
        return shorter


def refuse_columns(columns: Sequence[str]) -> None:
    """Raise ConfigError if columns are given for plain text."""
    if columns:
        raise ConfigError(f"columns: {', '.join(columns)}: plain text is read here, which has none; leave them out")
