"""Beam search, batched over sentences (SPEC 7.3).

Of every sentence W unfinished continuations live; each step looks at their 2W best extensions, so that the live
ones never run short when up to W of those end:

    sentence 0   beam 0   <sos> Je  vais          -1.2          2W best extensions
                 beam 1   <sos> Je  suis          -1.9    ->    ending in <eos>: finished, kept with their score
                 ...                                            the best W others: the next beams

A sentence is done when it has W finished hypotheses and no live one scores above the worst of them as it stands,
or at its limit, where ``<eos>`` is forced. Done sentences leave the batch and cost nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.generate.hypothesis import Hypothesis, Marks, State, Step, hypothesis, length_penalty, log_probabilities

ROWS = 32
"""Rows gone through at once: what is worked out of more would not stay in a CPU's cache."""


@dataclass
class _Beams:
    """The live continuations: what they wrote, token by token, and their summed log-probabilities."""

    sentence: Int[Tensor, " B"]
    limit: Int[Tensor, " B"]
    ids: Int[Tensor, "B W T"]
    scores: Float[Tensor, "B W T"]
    total: Float[Tensor, "B W"]


@dataclass
class _Extensions:
    """The best ways to go on, best first: from which beam, with which token, at which total."""

    beam: Int[Tensor, "B C"]
    token: Int[Tensor, "B C"]
    score: Float[Tensor, "B C"]
    total: Float[Tensor, "B C"]


def beam_search(
    step: Step, state: State, limits: Int[Tensor, " B"], marks: Marks, *, width: int, alpha: float
) -> list[list[Hypothesis]]:
    """The finished hypotheses of each sentence, best first, at most `width` each."""
    beams = _begin(limits)
    tokens = torch.full_like(limits, marks.start)
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    while len(tokens):
        length = beams.ids.shape[-1] + 1
        extensions = _extend(step(tokens, state), beams, length, marks, 2 * width)
        _collect(finished, beams, extensions, marks.end, width, alpha)
        chosen = _best_live(extensions, marks.end, width)
        going = _going(finished, beams, chosen.total[:, 0], length, width, alpha)
        rows = _advance(beams, chosen, going)
        tokens = beams.ids[:, :, -1].flatten()
        if len(tokens):
            state.select(rows)
    return finished


def _begin(limits: Int[Tensor, " B"]) -> _Beams:
    b, device = len(limits), limits.device
    return _Beams(
        sentence=torch.arange(b, device=device),
        limit=limits,
        ids=torch.empty(b, 1, 0, dtype=torch.long, device=device),
        scores=torch.empty(b, 1, 0, device=device),
        total=torch.zeros(b, 1, device=device),
    )


def _extend(logits: Float[Tensor, "N V"], beams: _Beams, length: int, marks: Marks, candidates: int) -> _Extensions:
    """The best extensions of each sentence's beams; at the limit only ``<eos>`` is one.

    The best of a sentence are among the best of each of its beams, so the vocabulary is gone through by row.
    """
    b, w = beams.total.shape
    best = [_best_tokens(rows, marks, candidates) for rows in logits.split(ROWS)]
    score, token, end = (torch.cat(parts).view(b, w, -1) for parts in zip(*best, strict=True))
    ending = (beams.limit == length)[:, None, None]
    if ending.any():
        only = torch.full_like(score, -torch.inf)
        only[..., :1] = end
        score, token = torch.where(ending, only, score), torch.where(ending, marks.end, token)
    totals = (beams.total[:, :, None] + score).flatten(1)  # (B, W C)
    total, index = totals.topk(min(candidates, totals.shape[1]))
    beam = index // score.shape[-1]
    return _Extensions(beam, token.flatten(1).gather(1, index), score.flatten(1).gather(1, index), total)


def _best_tokens(logits: Float[Tensor, "N V"], marks: Marks, candidates: int) -> tuple[Tensor, Tensor, Tensor]:
    """The log-probabilities of each row's likeliest tokens, those tokens, and the log-probability of ``<eos>``."""
    log_probs = log_probabilities(logits, marks)
    score, token = log_probs.topk(min(candidates, log_probs.shape[-1]))
    return score, token, log_probs[:, marks.end]


def _collect(
    finished: list[list[Hypothesis]], beams: _Beams, extensions: _Extensions, eos: int, width: int, alpha: float
) -> None:
    """Keep the extensions that end, the best `width` of each sentence."""
    ended = (extensions.token == eos) & (extensions.total > -torch.inf)
    for b, c in ended.nonzero().tolist():
        beam = extensions.beam[b, c]
        ids = [*beams.ids[b, beam].tolist(), eos]
        scores = [*beams.scores[b, beam].tolist(), extensions.score[b, c].item()]
        kept = finished[int(beams.sentence[b])]
        kept.append(hypothesis(ids, scores, alpha, cut=len(ids) == int(beams.limit[b])))
        kept.sort(key=lambda h: h.score, reverse=True)
        del kept[width:]


def _best_live(extensions: _Extensions, eos: int, width: int) -> _Extensions:
    """The extensions that become the next beams; where too few are left, impossible ones fill the width."""
    live = extensions.total.masked_fill(extensions.token == eos, -torch.inf)
    total, order = live.topk(min(width, live.shape[1]))
    beam, token, score = (part.gather(1, order) for part in (extensions.beam, extensions.token, extensions.score))
    return _Extensions(beam, token, score, total)


def _going(
    finished: list[list[Hypothesis]], beams: _Beams, best: Tensor, length: int, width: int, alpha: float
) -> Int[Tensor, " going"]:
    """The sentences that are not done yet."""
    going = []
    for b, (sentence, limit, total) in enumerate(
        zip(beams.sentence.tolist(), beams.limit.tolist(), best.tolist(), strict=True)
    ):
        kept = finished[sentence]
        beaten = len(kept) == width and total / length_penalty(length, alpha) <= kept[-1].score
        if length < limit and total > -torch.inf and not beaten:
            going.append(b)
    return torch.tensor(going, dtype=torch.long, device=best.device)


def _advance(beams: _Beams, chosen: _Extensions, going: Int[Tensor, " going"]) -> Int[Tensor, "going W"]:
    """Write the chosen extensions; returns the rows of the model's state they go on from."""
    beam, token, score = chosen.beam[going], chosen.token[going], chosen.score[going]
    old_width = beams.total.shape[1]
    batch = torch.arange(len(going), device=going.device)[:, None]
    beams.ids = torch.cat((beams.ids[going][batch, beam], token[..., None]), -1)
    beams.scores = torch.cat((beams.scores[going][batch, beam], score[..., None]), -1)
    beams.total = chosen.total[going]
    beams.sentence, beams.limit = beams.sentence[going], beams.limit[going]
    return going[:, None] * old_width + beam
