"""Hypotheses: the result of every search, and its score.

    score = sum of log p(token) / ((5 + length) / 6)^alpha        (Wu et al. 2016)

over all tokens written, ``<eos>`` included; the length counts ``<eos>`` too. Forced decoding of the same tokens
gives the same token scores, hence the same score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

DecodeStep = Callable[[Int[Tensor, " N"], Any], Float[Tensor, "N V"]]
"""Write one token in each row and give the logits of the next; the state is the model's own."""


class SpecialTokens(NamedTuple):
    """The tokens every search knows: what stands before a text, what ends it, and what is never written."""

    start_id: int
    eos_id: int
    suppressed_ids: tuple[int, ...] = ()


@runtime_checkable
class DecoderStateLike(Protocol):
    """The decoder state of a model (its KV cache); the search selects the rows that go on."""

    def select(self, rows: Int[Tensor, "B W"]) -> None: ...


@dataclass(frozen=True)
class Hypothesis:
    """A finished text: its token ids (the last is ``<eos>``), the log-probability of each, and the score.

    `is_truncated` says that it reached its maximum length, so that its end was forced.
    """

    ids: tuple[int, ...]
    token_scores: tuple[float, ...]
    score: float
    is_truncated: bool = False


def compute_log_probs(logits: Float[Tensor, "N V"], special_tokens: SpecialTokens) -> Float[Tensor, "N V"]:
    """Return the log-probabilities of the next token; those of suppressed tokens are -inf."""
    log_probs = logits.float().log_softmax(-1)
    if special_tokens.suppressed_ids:
        log_probs[:, list(special_tokens.suppressed_ids)] = -torch.inf
    return log_probs


def length_penalty(length: int, alpha: float) -> float:
    """Return ``((5 + length) / 6)^alpha`` (Wu et al. 2016, eq. 14)."""
    return float(((5 + length) / 6) ** alpha)


def make_hypothesis(
    ids: Sequence[int], token_scores: Sequence[float], alpha: float, *, is_truncated: bool = False
) -> Hypothesis:
    """Return a hypothesis with its length-normalised score."""
    return Hypothesis(
        tuple(ids), tuple(token_scores), sum(token_scores) / length_penalty(len(ids), alpha), is_truncated
    )
