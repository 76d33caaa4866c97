"""One continuation per row: the most likely token each time, or one drawn at random.

A row that has come to its end is taken out, so it costs nothing more. `walk` gives the tokens as they are written;
`follow` takes it to the end of every row.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.generate.hypothesis import (
    DecoderStateLike,
    DecodeStep,
    Hypothesis,
    SpecialTokens,
    compute_log_probs,
    make_hypothesis,
)

Sampler = Callable[[Float[Tensor, "N V"], list[int]], Int[Tensor, " N"]]
"""Choose the next token of each row from its log-probabilities, given which of the rows that began it is."""

RandomSource = Callable[[list[int]], Sequence[float]]
"""A number from 0 to 1, drawn for each of these rows."""

LogitsProcessor = Callable[[Float[Tensor, "N V"], list[int]], Float[Tensor, "N V"]]
"""What becomes of the logits of these rows before a token is picked; scores stay those of the model."""

NAN_SCORES_MESSAGE = "the model's scores are not numbers; its weights are damaged, or its training went wrong"


def select_greedy_tokens(log_probs: Float[Tensor, "N V"], rows: list[int]) -> Int[Tensor, " N"]:
    """Greedy decoding."""
    return log_probs.argmax(-1)


def check_sampling_options(temperature: float, top_k: int | None, top_p: float, *, allows_greedy: bool = False) -> None:
    """Refuse what nothing can be drawn by; a `greedy` way takes the most likely token at temperature 0."""
    if allows_greedy and not 0 <= temperature < math.inf:
        raise InputError(f"temperature {temperature}: expected 0 (the most likely token each time) or more")
    if not allows_greedy and not 0 < temperature < math.inf:
        raise InputError(f"temperature {temperature}: expected more than 0; for the most likely token use greedy")
    if not 0 < top_p <= 1:
        raise InputError(f"top-p {top_p}: expected more than 0 and at most 1")
    if top_k is not None and top_k < 0:
        raise InputError(f"top-k {top_k}: expected 0 (no limit) or more")


def make_random_sampler(
    random_source: RandomSource, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Sampler:
    """Draw from the distribution sharpened by `temperature`, cut to the `top_k` tokens and the `top_p` mass.

    Of `top_k`, None and 0 are no limit.
    """
    check_sampling_options(temperature, top_k, top_p)

    def pick(log_probs: Tensor, rows: list[int]) -> Tensor:
        kept, tokens = _select_top_k(log_probs, top_k, is_sorted=top_p < 1)
        probabilities = (_to_float64(kept) / temperature).softmax(-1)
        if top_p < 1:
            before = probabilities.cumsum(-1) - probabilities
            probabilities[before >= top_p] = 0.0
        up_to = probabilities.cumsum(-1)
        total = up_to[:, -1:]
        drawn = torch.tensor(random_source(rows), dtype=up_to.dtype, device=up_to.device)[:, None] * total
        below = torch.minimum(drawn, total.nextafter(torch.zeros_like(total)))  # rounding must not lead to the end
        place = torch.searchsorted(up_to, below, right=True).clamp(max=up_to.shape[1] - 1)
        return tokens.gather(-1, place.to(tokens)).squeeze(-1)

    return pick


def _select_top_k(
    log_probs: Float[Tensor, "N V"], top_k: int | None, *, is_sorted: bool
) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"]]:
    """The `top_k` most likely tokens, from the first to the last of them; of all, in this order if it matters."""
    size = log_probs.shape[1]
    if top_k and top_k < size:
        return log_probs.topk(top_k)
    if is_sorted:
        return log_probs.sort(-1, descending=True)
    return log_probs, torch.arange(size, device=log_probs.device).expand_as(log_probs)


def _to_float64(x: Tensor) -> Tensor:
    """In float64, which Apple's devices do not have: what comes from them is worked out on the CPU."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def make_row_random_source(seeds: Sequence[str]) -> RandomSource:
    """Each row draws from a generator of its own, so what it draws does not depend on the rows beside it."""
    generators = [random.Random(seed) for seed in seeds]
    return lambda rows: [generators[row].random() for row in rows]


class RepetitionPenalty:
    """A `Change` that makes what a row has read or written less likely (Keskar et al. 2019).

    The logits of those tokens are divided by `penalty` where they are positive, and else multiplied with it.
    """

    def __init__(self, penalty: float, seen_tokens: Bool[Tensor, "N V"]) -> None:
        self.penalty, self.seen_tokens = penalty, seen_tokens

    def __call__(self, logits: Float[Tensor, "N V"], rows: list[int]) -> Float[Tensor, "N V"]:
        less = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self.seen_tokens[rows], less, logits)

    def update(self, rows: list[int], tokens: list[int]) -> None:
        """These rows have written these tokens."""
        self.seen_tokens[rows, tokens] = True


class GenerationStep(NamedTuple):
    """One token of each live row: which rows of those that began, their tokens, and the log-probability of each."""

    rows: list[int]
    tokens: list[int]
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class DecodingLoopOptions:
    """How rows are written: each up to its limit, where `forced` has it end with the token that ends a text.

    `ended` says whether a row has come to its end with a token; None leaves that to the token that ends a text.
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
        changed = self.logits_processor(logits.float(), rows)
        changed[:, list(self.special_tokens.suppressed_ids)] = -torch.inf
        return self.sampler(changed, rows)

    def is_finished(self, row: int, token: int) -> bool:
        return (
            token == self.special_tokens.eos_id
            if self.stopping_criterion is None
            else self.stopping_criterion(row, token)
        )


def generate_tokens(
    step: DecodeStep, state: DecoderStateLike, start_tokens: Int[Tensor, " N"], config: DecodingLoopOptions
) -> Iterator[GenerationStep]:
    """Write all rows, one token at a time, behind the token each begins with, until each has come to its end.

    A GPU takes the next step while tokens are brought from it and looked at, also in rows that are found to have ended.
    """
    tokens, most = start_tokens, config.max_lengths.tolist()
    rows = list(range(len(most)))  # the input row each live row writes
    ahead: Tensor | None = None
    for length in range(1, max(most, default=0) + 1):
        logits = step(tokens, state) if ahead is None else ahead
        log_probs = compute_log_probs(logits, config.special_tokens)
        tokens = config.select_tokens(logits, log_probs, rows)
        if config.force_eos and any(most[row] == length for row in rows):
            last = torch.tensor([most[row] == length for row in rows], device=tokens.device)
            tokens = torch.where(last, config.special_tokens.eos_id, tokens)
        brought = _copy_to_host(tokens, log_probs.gather(-1, tokens[:, None]).squeeze(-1))
        more = any(length < most[row] for row in rows)
        ahead = step(tokens, state) if more and _runs_asynchronously(tokens) else None
        written, scores = brought()
        if any(map(math.isnan, scores)):
            raise InputError(NAN_SCORES_MESSAGE)
        yield GenerationStep(rows, written, scores)
        pairs = enumerate(zip(rows, written, strict=True))
        going = [place for place, (row, token) in pairs if length < most[row] and not config.is_finished(row, token)]
        if not going:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=tokens.device)
            tokens, rows = tokens[kept], [rows[place] for place in going]
            state.select(kept[:, None])
            ahead = None if ahead is None else ahead[kept]


def _runs_asynchronously(x: Tensor) -> bool:
    """Whether its device works by itself, while Python does something else."""
    return x.is_cuda


def _copy_to_host(
    tokens: Int[Tensor, " N"], scores: Float[Tensor, " N"]
) -> Callable[[], tuple[list[int], list[float]]]:
    """Have these brought here, behind what their device was asked for so far; the call waits for them."""
    if not tokens.is_cuda:
        return lambda: (tokens.tolist(), scores.tolist())
    here = [part.to("cpu", non_blocking=True) for part in (tokens, scores)]
    there = torch.cuda.current_stream(tokens.device).record_event()

    def wait() -> tuple[list[int], list[float]]:
        there.synchronize()
        return here[0].tolist(), here[1].tolist()

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
    """Write each row to its ``<eos>``, which is forced at the row's limit."""
    ids: list[list[int]] = [[] for _ in max_lengths]
    scores: list[list[float]] = [[] for _ in max_lengths]
    way = DecodingLoopOptions(sampler=sampler, special_tokens=special_tokens, max_lengths=max_lengths, force_eos=True)
    for chosen in generate_tokens(step, state, torch.full_like(max_lengths, special_tokens.start_id), way):
        for row, token, score in zip(*chosen, strict=True):
            ids[row].append(token)
            scores[row].append(score)
    found = zip(ids, scores, max_lengths.tolist(), strict=True)
    return [make_hypothesis(i, s, alpha, is_truncated=len(i) == most) for i, s, most in found]
