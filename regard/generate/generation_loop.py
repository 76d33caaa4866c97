"""The generation loop: one continuation per row, token by token, with any sampler.

A row that is finished leaves the batch, so it costs nothing more. `generate_tokens` yields tokens as they are
generated; `generate` runs it to the end of every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import NonFiniteError
from regard.generate.hypothesis import (
    DecoderStateLike,
    DecodeStep,
    Hypothesis,
    SpecialTokens,
    compute_log_probs,
    make_hypothesis,
)
from regard.generate.sampling import LogitsProcessor, Sampler


class GenerationStep(NamedTuple):
    """One token of each active row: the rows by their input index, their tokens, and the log-probability of each."""

    rows: list[int]
    tokens: list[int]
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class DecodingLoopOptions:
    """The sampler and the end of each row: `max_lengths`, where `force_eos` makes the last token the end of the text.

    `stopping_criterion(row, token)` tells whether a token ends its row; None is the token that ends a text.
    """

    sampler: Sampler
    special_tokens: SpecialTokens
    max_lengths: Int[Tensor, " N"]
    logits_processor: LogitsProcessor | None = None
    stopping_criterion: Callable[[int, int], bool] | None = None
    force_eos: bool = False

    def select_tokens(self, logits: Float[Tensor, "N V"], log_probs: Float[Tensor, "N V"], rows: list[int]) -> Tensor:
        if self.logits_processor is None:
            return self.sampler(log_probs, rows)
        processed = self.logits_processor(logits.float(), rows)
        processed[:, list(self.special_tokens.suppressed_ids)] = -torch.inf
        return self.sampler(processed, rows)

    def is_finished(self, row: int, token: int) -> bool:
        if self.stopping_criterion is None:
            return token == self.special_tokens.eos_id
        return self.stopping_criterion(row, token)


def generate_tokens(
    step: DecodeStep, state: DecoderStateLike, start_tokens: Int[Tensor, " N"], options: DecodingLoopOptions
) -> Iterator[GenerationStep]:
    """Yield the next token of every active row, each after its start token, until all rows are finished.

    A GPU computes the next step while the tokens are copied to the host and examined, also for rows that turn out to
    be finished.
    """
    tokens, max_lengths = start_tokens, options.max_lengths.tolist()
    rows = list(range(len(max_lengths)))  # the input row of each active row
    next_logits: Tensor | None = None
    for length in range(1, max(max_lengths, default=0) + 1):
        logits = step(tokens, state) if next_logits is None else next_logits
        log_probs = compute_log_probs(logits, options.special_tokens)
        tokens = options.select_tokens(logits, log_probs, rows)
        if options.force_eos and any(max_lengths[row] == length for row in rows):
            at_limit = torch.tensor([max_lengths[row] == length for row in rows], device=tokens.device)
            tokens = torch.where(at_limit, options.special_tokens.eos_id, tokens)
        wait_for_copy = _copy_to_host(tokens, log_probs.gather(-1, tokens[:, None]).squeeze(-1))
        continues = any(length < max_lengths[row] for row in rows)
        next_logits = step(tokens, state) if continues and _runs_asynchronously(tokens) else None
        generated, scores = wait_for_copy()
        if any(map(math.isnan, scores)):
            raise NonFiniteError
        yield GenerationStep(rows, generated, scores)
        pairs = enumerate(zip(rows, generated, strict=True))
        active = [i for i, (row, token) in pairs if length < max_lengths[row] and not options.is_finished(row, token)]
        if not active:
            return
        if len(active) < len(rows):
            selected = torch.tensor(active, device=tokens.device)
            tokens, rows = tokens[selected], [rows[i] for i in active]
            state.select(selected[:, None])
            next_logits = None if next_logits is None else next_logits[selected]


def _runs_asynchronously(x: Tensor) -> bool:
    """Return True if the tensor's device computes while Python goes on."""
    return x.is_cuda


def _copy_to_host(
    tokens: Int[Tensor, " N"], scores: Float[Tensor, " N"]
) -> Callable[[], tuple[list[int], list[float]]]:
    """Start a copy to the host, queued behind the work so far; the returned call waits for it."""
    if not tokens.is_cuda:
        return lambda: (tokens.tolist(), scores.tolist())
    copies = [part.to("cpu", non_blocking=True) for part in (tokens, scores)]
    copied = torch.cuda.current_stream(tokens.device).record_event()

    def wait() -> tuple[list[int], list[float]]:
        copied.synchronize()
        return copies[0].tolist(), copies[1].tolist()

    return wait


def generate(
    step: DecodeStep,
    state: DecoderStateLike,
    sampler: Sampler,
    max_lengths: Int[Tensor, " N"],
    special_tokens: SpecialTokens,
    *,
    alpha: float,
) -> list[Hypothesis]:
    """Return one hypothesis per row, ended by ``<eos>``, which is forced at the row's limit."""
    ids: list[list[int]] = [[] for _ in max_lengths]
    scores: list[list[float]] = [[] for _ in max_lengths]
    options = DecodingLoopOptions(
        sampler=sampler, special_tokens=special_tokens, max_lengths=max_lengths, force_eos=True
    )
    for generated in generate_tokens(step, state, torch.full_like(max_lengths, special_tokens.start_id), options):
        for row, token, score in zip(*generated, strict=True):
            ids[row].append(token)
            scores[row].append(score)
    rows = zip(ids, scores, max_lengths.tolist(), strict=True)
    return [make_hypothesis(i, s, alpha, is_truncated=len(i) == limit) for i, s, limit in rows]
