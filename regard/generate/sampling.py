"""Samplers: the choice of the next token of each row, the most likely one or one drawn at random.

config.py turns a user's options into a sampler, generation_loop.py calls it once per token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Sampler = Callable[[Float[Tensor, "N V"], list[int]], Int[Tensor, " N"]]
"""Choose the next token of each row from its log-probabilities, given the input row that each row continues."""

RandomSource = Callable[[list[int]], Sequence[float]]
"""Draw a number from 0 to 1 for each of these rows."""

LogitsProcessor = Callable[[Float[Tensor, "N V"], list[int]], Float[Tensor, "N V"]]
"""Change the logits of these rows before a token is chosen; scores stay those of the model."""


def select_greedy_tokens(log_probs: Float[Tensor, "N V"], rows: list[int]) -> Int[Tensor, " N"]:
    """Return the most likely token of each row: greedy decoding."""
    return log_probs.argmax(-1)


def make_random_sampler(
    random_source: RandomSource, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Sampler:
    """Return a sampler from the softmax at a `temperature`, cut to the `top_k` tokens and the `top_p` mass.

    A `top_k` of None or 0 is no limit.
    """

    def sample(log_probs: Tensor, rows: list[int]) -> Tensor:
        top_log_probs, tokens = _select_top_k(log_probs, top_k, is_sorted=top_p < 1)
        probabilities = (_to_float64(top_log_probs) / temperature).softmax(-1)
        if top_p < 1:
            preceding_mass = probabilities.cumsum(-1) - probabilities
            probabilities[preceding_mass >= top_p] = 0.0
        cumulative = probabilities.cumsum(-1)
        total = cumulative[:, -1:]
        drawn = torch.tensor(random_source(rows), dtype=total.dtype, device=total.device)[:, None] * total
        drawn = torch.minimum(drawn, total.nextafter(torch.zeros_like(total)))  # rounding must not reach the end
        index = torch.searchsorted(cumulative, drawn, right=True).clamp(max=cumulative.shape[1] - 1)
        return tokens.gather(-1, index.to(tokens)).squeeze(-1)

    return sample


def _select_top_k(
    log_probs: Float[Tensor, "N V"], top_k: int | None, *, is_sorted: bool
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"]]:
    """Return the log-probabilities and ids of the `top_k` most likely tokens; of all tokens without a limit."""
    size = log_probs.shape[1]
    if top_k and top_k < size:
        return log_probs.topk(top_k)
    if is_sorted:
        return log_probs.sort(-1, descending=True)
    return log_probs, torch.arange(size, device=log_probs.device).expand_as(log_probs)


def _to_float64(x: Tensor) -> Tensor:
    """Return the tensor in float64, on the CPU if it comes from an Apple device, which has no float64."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def make_row_random_source(seeds: Sequence[str]) -> RandomSource:
    """Return a source with one generator per row, so that a row's draws do not depend on the rows beside it."""
    generators = [random.Random(seed) for seed in seeds]
    return lambda rows: [generators[row].random() for row in rows]


class RepetitionPenalty:
    """A `LogitsProcessor` that makes the tokens of a row's prompt and output less likely (Keskar et al. 2019).

    The logits of those tokens are divided by `penalty` where they are positive, else multiplied by it.
    """

    def __init__(self, penalty: float, seen_tokens: Bool[Tensor, "N V"]) -> None:
        self.penalty, self.seen_tokens = penalty, seen_tokens

    def __call__(self, logits: Float[Tensor, "N V"], rows: list[int]) -> Float[Tensor, "N V"]:
        penalised = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self.seen_tokens[rows], penalised, logits)

    def update(self, rows: list[int], tokens: list[int]) -> None:
        """Mark the tokens that these rows have generated."""
        self.seen_tokens[rows, tokens] = True
