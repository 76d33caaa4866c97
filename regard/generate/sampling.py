"""One continuation per row: the most likely token each time, or one drawn at random.

A row that has come to its end is taken out, so it costs nothing more. `walk` gives the tokens as they are written;
`follow` takes it to the end of every row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.hypothesis import Hypothesis, Marks, State, Step, hypothesis, log_probabilities

Pick = Callable[[Float[Tensor, "N V"], list[int]], Int[Tensor, " N"]]
"""Choose the next token of each row from its log-probabilities, given which of the rows that began it is."""

Draw = Callable[[list[int]], Sequence[float]]
"""A number from 0 to 1, drawn for each of these rows."""

Change = Callable[[Float[Tensor, "N V"], list[int]], Float[Tensor, "N V"]]
"""What becomes of the logits of these rows before a token is picked; scores stay those of the model."""


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
        # Rounding must not lead beyond what may be drawn; of scores that are not numbers the first is, for all to see.
        last = ((probabilities > 0).sum(-1, keepdim=True) - 1).clamp(min=0)
        place = torch.minimum(torch.searchsorted(up_to, drawn, right=True), last)
        return tokens.gather(-1, place).squeeze(-1)

    return pick


def draw_by_row(seeds: Sequence[str]) -> Draw:
    """Each row draws from a generator of its own, so what it draws does not depend on the rows beside it."""
    generators = [random.Random(seed) for seed in seeds]
    return lambda rows: [generators[row].random() for row in rows]


class Repetition:
    """A `Change` that makes what a row has read or written less likely (Keskar et al. 2019).

    The logits of those tokens are divided by `penalty` where they are positive, and else multiplied with it.
    """

    def __init__(self, penalty: float, seen: Bool[Tensor, "N V"]) -> None:
        self.penalty, self.seen = penalty, seen

    def __call__(self, logits: Float[Tensor, "N V"], rows: list[int]) -> Float[Tensor, "N V"]:
        less = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self.seen[rows], less, logits)

    def note(self, rows: list[int], tokens: list[int]) -> None:
        """These rows have written these tokens."""
        self.seen[rows, tokens] = True


class Chosen(NamedTuple):
    """One token of each live row: which rows of those that began, their tokens, and the log-probability of each."""

    rows: list[int]
    tokens: list[int]
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class Way:
    """How rows are written: each up to its limit, where `forced` has it end with the token that ends a text.

    `ended` says whether a row has come to its end with a token; None leaves that to the token that ends a text.
    """

    pick: Pick
    marks: Marks
    limits: Int[Tensor, " N"]
    change: Change | None = None
    ended: Callable[[int, int], bool] | None = None
    forced: bool = False

    def choose(self, logits: Float[Tensor, "N V"], log_probs: Float[Tensor, "N V"], rows: list[int]) -> Tensor:
        if self.change is None:
            return self.pick(log_probs, rows)
        changed = self.change(logits.float(), rows)
        changed[:, list(self.marks.never)] = -torch.inf
        return self.pick(changed, rows)

    def over(self, row: int, token: int) -> bool:
        return token == self.marks.end if self.ended is None else self.ended(row, token)


def walk(step: Step, state: State, first: Int[Tensor, " N"], way: Way) -> Iterator[Chosen]:
    """Write all rows, one token at a time, behind the token each begins with, until each has come to its end."""
    tokens, limit = first, way.limits
    row = torch.arange(len(limit), device=limit.device)  # the input row each live row writes
    for length in range(1, max(limit.tolist(), default=0) + 1):
        logits, rows = step(tokens, state), row.tolist()
        log_probs = log_probabilities(logits, way.marks)
        tokens = way.choose(logits, log_probs, rows)
        if way.forced:
            tokens = torch.where(limit == length, way.marks.end, tokens)
        written = tokens.tolist()
        yield Chosen(rows, written, log_probs.gather(-1, tokens[:, None]).squeeze(-1).tolist())
        most = limit.tolist()
        over = [way.over(r, t) or length == n for r, t, n in zip(rows, written, most, strict=True)]
        if all(over):
            return
        if any(over):
            going = torch.tensor([i for i, done in enumerate(over) if not done], device=limit.device)
            tokens, limit, row = tokens[going], limit[going], row[going]
            state.select(going[:, None])


def follow(
    step: Step, state: State, pick: Pick, limits: Int[Tensor, " N"], marks: Marks, *, alpha: float
) -> list[Hypothesis]:
    """Write each row to its ``<eos>``, which is forced at the row's limit."""
    ids: list[list[int]] = [[] for _ in limits]
    scores: list[list[float]] = [[] for _ in limits]
    way = Way(pick=pick, marks=marks, limits=limits, forced=True)
    for chosen in walk(step, state, torch.full_like(limits, marks.start), way):
        for row, token, score in zip(*chosen, strict=True):
            ids[row].append(token)
            scores[row].append(score)
    found = zip(ids, scores, limits.tolist(), strict=True)
    return [hypothesis(i, s, alpha, cut=len(i) == most) for i, s, most in found]
