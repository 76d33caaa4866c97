"""A model that is nothing but a table: the logits of what follows each prefix of each sentence."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.generate import SpecialTokens

SOS, EOS = 1, 0
MARKS = SpecialTokens(SOS, EOS)


class TableState:
    """For every row: which sentence it writes, and what it has written (``<sos>`` first)."""

    def __init__(self, sentences: list[str]) -> None:
        self.rows = [(sentence, ()) for sentence in sentences]

    def select(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.flatten().tolist()]


class Table:
    """Logits drawn from the prefix itself, so that any two searches see the same model; counts its rows."""

    def __init__(self, vocabulary: int, *, eos_bonus: float = 0.0, spread: float = 1.5) -> None:
        self.vocabulary, self.eos_bonus, self.spread = vocabulary, eos_bonus, spread
        self.rows_of_steps: list[int] = []

    def logits(self, sentence: str, prefix: tuple[int, ...]) -> Tensor:
        seed = hashlib.blake2b(repr((sentence, prefix)).encode(), digest_size=6).hexdigest()
        logits = self.spread * torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(int(seed, 16)))
        logits[EOS] += self.eos_bonus
        return logits

    def step(self, tokens: Tensor, state: TableState) -> Tensor:
        assert len(tokens) == len(state.rows)
        self.rows_of_steps.append(len(tokens))
        state.rows = [(s, (*prefix, t)) for (s, prefix), t in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([self.logits(*row) for row in state.rows])

    def token_scores(self, sentence: str, ids: tuple[int, ...]) -> list[float]:
        """Forced decoding: the log-probability of each token after those before it."""
        prefixes = [(SOS, *ids[:i]) for i in range(len(ids))]
        rows = [self.logits(sentence, prefix).double().log_softmax(-1) for prefix in prefixes]
        return [row[token].item() for row, token in zip(rows, ids, strict=True)]

    def texts(self, limit: int) -> Iterator[tuple[int, ...]]:
        """Every text of at most `limit` tokens: anything but ``<eos>``, then ``<eos>``."""
        others = [token for token in range(self.vocabulary) if token != EOS]
        for length in range(limit):
            for text in itertools.product(others, repeat=length):
                yield (*text, EOS)


def score(token_scores: list[float], alpha: float) -> float:
    """The documented formula, once more."""
    return math.fsum(token_scores) / ((5 + len(token_scores)) / 6) ** alpha


def at_most(limits: dict[str, int]) -> Tensor:
    """How many tokens each sentence may have."""
    return torch.tensor(list(limits.values()), dtype=torch.long)
