"""One continuation per row: the most likely token each time, or one drawn at random.

A row that has written ``<eos>`` is taken out, so it costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.hypothesis import Hypothesis, Marks, State, Step, hypothesis, log_probabilities

Pick = Callable[[Float[Tensor, "N V"]], Int[Tensor, " N"]]
"""Choose the next token of each row from its logits."""


def most_likely(logits: Float[Tensor, "N V"]) -> Int[Tensor, " N"]:
    """Greedy decoding."""
    return logits.argmax(-1)


def sampler(generator: torch.Generator, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Pick:
    """Draw from the distribution sharpened by `temperature`, cut to the `top_k` tokens and the `top_p` mass."""
    if temperature <= 0:
        raise InputError(f"temperature {temperature}: expected more than 0; for the most likely token use greedy")
    if not 0 < top_p <= 1:
        raise InputError(f"top-p {top_p}: expected more than 0 and at most 1")
    if top_k < 0:
        raise InputError(f"top-k {top_k}: expected 0 (no limit) or more")

    def pick(logits: Tensor) -> Tensor:
        ordered, tokens = (logits.float() / temperature).sort(-1, descending=True)
        if top_k:
            ordered[:, top_k:] = -torch.inf
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        probabilities[before >= top_p] = 0.0
        drawn = torch.multinomial(probabilities, 1, generator=generator)
        return tokens.gather(-1, drawn).squeeze(-1)

    return pick


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
        tokens = torch.where(limit == length, marks.end, pick(log_probs))
        chosen = log_probs.gather(-1, tokens[:, None]).squeeze(-1)
        for r, token, score in zip(row.tolist(), tokens.tolist(), chosen.tolist(), strict=True):
            ids[r].append(token)
            scores[r].append(score)
        going = (tokens != marks.end).nonzero().squeeze(-1)
        if len(going) == 0:
            break
        if len(going) < len(tokens):
            tokens, limit, row = tokens[going], limit[going], row[going]
            state.select(going[:, None])
    return [hypothesis(i, s, alpha) for i, s in zip(ids, scores, strict=True)]
