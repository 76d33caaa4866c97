"""What every search gives back, and how it is scored.

    score = sum of log p(token) / ((5 + length) / 6)^alpha        (Wu et al. 2016)

over all tokens written, ``<eos>`` included; the length counts ``<eos>`` too. Forced decoding of the same tokens
gives the same token scores, hence the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

Step = Callable[[Int[Tensor, " N"], Any], Float[Tensor, "N V"]]
"""Write one token in each row and give the logits of the next; the state is the model's own."""


@runtime_checkable
class State(Protocol):
    """What a model remembers between steps; the search only says which rows go on."""

    def select(self, rows: Int[Tensor, "B W"]) -> None: ...


@dataclass(frozen=True)
class Hypothesis:
    """A finished text: its token ids (the last is ``<eos>``), the log-probability of each, and the score."""

    ids: tuple[int, ...]
    token_scores: tuple[float, ...]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """``((5 + length) / 6)^alpha``."""
    return float(((5 + length) / 6) ** alpha)


def hypothesis(ids: Sequence[int], token_scores: Sequence[float], alpha: float) -> Hypothesis:
    """A hypothesis with its score."""
    return Hypothesis(tuple(ids), tuple(token_scores), sum(token_scores) / length_penalty(len(ids), alpha))
