"""One continuation per row: the most likely token each time, or one drawn at random.

A row that has written ``<eos>`` is taken out, so it costs nothing more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.hypothesis import Hypothesis, Marks, State, Step, hypothesis, log_probabilities

Pick = Callable[[Float[Tensor, "N V"], list[int]], Int[Tensor, " N"]]
"""Choose the next token of each row from its log-probabilities, given which of the rows that began it is."""

Draw = Callable[[list[int]], Sequence[float]]
"""A number from 0 to 1, drawn for each of these rows."""


def most_likely(log_probs: Float[Tensor, "N V"], rows: list[int]) -> Int[Tensor, " N"]:
    """Greedy decoding."""
    return log_probs.argmax(-1)


def sampler(draw: Draw, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Pick:
    """Draw from the distribution sharpened by `temperature`, cut to the `top_k` tokens and the `top_p` mass."""
    if temperature <= 0:
        raise InputError(f"temperature {temperature}: expected more than 0; for the most likely token use greedy")
    if not 0 < top_p <= 1:
        raise InputError(f"top-p {top_p}: expected more than 0 and at most 1")
    if top_k < 0:
        raise InputError(f"top-k {top_k}: expected 0 (no limit) or more")

    def pick(log_probs: Tensor, rows: list[int]) -> Tensor:
        ordered, tokens = (log_probs.double() / temperature).sort(-1, descending=True)
        if top_k:
            ordered[:, top_k:] = -torch.inf
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        probabilities[before >= top_p] = 0.0
        up_to = probabilities.cumsum(-1)
        drawn = torch.tensor(draw(rows), dtype=up_to.dtype, device=up_to.device)[:, None] * up_to[:, -1:]
        last = (probabilities > 0).sum(-1, keepdim=True) - 1  # rounding must not lead beyond what may be drawn
        place = torch.minimum(torch.searchsorted(up_to, drawn, right=True), last)
        return tokens.gather(-1, place).squeeze(-1)

    return pick


def draw_by_row(seeds: Sequence[str]) -> Draw:
    """Each row draws from a generator of its own, so what it draws does not depend on the rows beside it."""
    generators = [random.Random(seed) for seed in seeds]
    return lambda rows: [generators[row].random() for row in rows]


def follow(
    step: Step, state: State, pick: Pick, limits: Int[Tensor, " N"], marks: Marks, *, alpha: float
) -> list[Hypothesis]:
    """Write each row to its ``<eos>``, which is forced at the row's limit."""
    n_rows, limit = len(limits), limits
    tokens = torch.full_like(limits, marks.start)
    row = torch.arange(n_rows, device=limits.device)  # the input row each live row writes
    ids: list[list[int]] = [[] for _ in range(n_rows)]
    scores: list[list[float]] = [[] for _ in range(n_rows)]
    for length in range(1, max(limits.tolist(), default=0) + 1):
        log_probs = log_probabilities(step(tokens, state), marks)
        rows = row.tolist()
        tokens = torch.where(limit == length, marks.end, pick(log_probs, rows))
        chosen = log_probs.gather(-1, tokens[:, None]).squeeze(-1)
        for r, token, score in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
            ids[r].append(token)
            scores[r].append(score)
        going = (tokens != marks.end).nonzero().squeeze(-1)
        if len(going) == 0:
            break
        if len(going) < len(tokens):
            tokens, limit, row = tokens[going], limit[going], row[going]
            state.select(going[:, None])
    found = zip(ids, scores, limits.tolist(), strict=True)
    return [hypothesis(i, s, alpha, cut=len(i) == most) for i, s, most in found]
