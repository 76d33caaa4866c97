"""Beam search, batched over sentences.

Of every sentence W unfinished continuations live; each step looks at their 2W best extensions, so that the live
ones never run short when up to W of those end:

    sentence 0   beam 0   <sos> Je  vais          -1.2          2W best extensions
                 beam 1   <sos> Je  suis          -1.9    ->    ending in <eos>: finished, kept with their score
                 ...                                            the best W others: the next beams

A sentence is done when it has W finished hypotheses and no live one scores above the worst of them as it stands,
or at its limit, where ``<eos>`` is forced. Done sentences leave the batch and cost nothing more. Scores have the length
penalty of hypothesis.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    length_penalty,
    make_hypothesis,
)

ROWS_PER_CHUNK = 32
"""Rows gone through at once: what is worked out of more would not stay in a CPU's cache."""


@dataclass
class _Beams:
    """The live continuations: what they wrote, token by token, and their summed log-probabilities."""

    sentence_index: Int[Tensor, " B"]
    max_length: Int[Tensor, " B"]
    ids: Int[Tensor, "B W T"]
    log_probs: Float[Tensor, "B W T"]
    cum_log_probs: Float[Tensor, "B W"]


@dataclass
class _Candidates:
    """The best ways to go on, best first: from which beam, with which token, at which total."""

    beam: Int[Tensor, "B C"]
    token: Int[Tensor, "B C"]
    log_prob: Float[Tensor, "B C"]
    cum_log_prob: Float[Tensor, "B C"]


def beam_search(
    step: DecodeStep,
    state: DecoderStateLike,
    max_lengths: Int[Tensor, " B"],
    special_tokens: SpecialTokens,
    *,
    beam_width: int,
    alpha: float,
) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence, best first, at most `beam_width` each."""
    beams = _init_beams(max_lengths)
    tokens = torch.full_like(max_lengths, special_tokens.start_id)
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    while len(tokens):
        length = beams.ids.shape[-1] + 1
        extensions = _find_candidates(step(tokens, state), beams, length, special_tokens, 2 * beam_width)
        _collect_finished(finished, beams, extensions, special_tokens.eos_id, beam_width, alpha)
        chosen = _select_next_beams(extensions, special_tokens.eos_id, beam_width)
        going = _find_unfinished(finished, beams, chosen.cum_log_prob[:, 0], length, beam_width, alpha)
        rows = _advance_beams(beams, chosen, going)
        tokens = beams.ids[:, :, -1].flatten()
        if len(tokens):
            state.select(rows)
    return finished


def _init_beams(max_lengths: Int[Tensor, " B"]) -> _Beams:
    b, device = len(max_lengths), max_lengths.device
    return _Beams(
        sentence_index=torch.arange(b, device=device),
        max_length=max_lengths,
        ids=torch.empty(b, 1, 0, dtype=torch.long, device=device),
        log_probs=torch.empty(b, 1, 0, device=device),
        cum_log_probs=torch.zeros(b, 1, device=device),
    )


def _find_candidates(
    logits: Float[Tensor, "N V"], beams: _Beams, length: int, special_tokens: SpecialTokens, n_candidates: int
) -> _Candidates:
    """Return the best extensions of each sentence's beams; at the length limit only ``<eos>`` is one.

    The best of a sentence are among the best of each of its beams, so the vocabulary is gone through by row.
    """
    b, w = beams.cum_log_probs.shape
    best = [_find_top_tokens(rows, special_tokens, n_candidates) for rows in logits.split(ROWS_PER_CHUNK)]
    score, token, end = (torch.cat(parts).view(b, w, -1) for parts in zip(*best, strict=True))
    ending = (beams.max_length == length)[:, None, None]
    if ending.any():
        only = torch.full_like(score, -torch.inf)
        only[..., :1] = end
        score, token = torch.where(ending, only, score), torch.where(ending, special_tokens.eos_id, token)
    totals = (beams.cum_log_probs[:, :, None] + score).flatten(1)  # (B, W C)
    total, index = totals.topk(min(n_candidates, totals.shape[1]))
    beam = index // score.shape[-1]
    return _Candidates(beam, token.flatten(1).gather(1, index), score.flatten(1).gather(1, index), total)


def _find_top_tokens(
    logits: Float[Tensor, "N V"], special_tokens: SpecialTokens, n_candidates: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's most likely tokens with their log-probabilities, and the log-probability of ``<eos>``."""
    log_probs = compute_log_probs(logits, special_tokens)
    score, token = log_probs.topk(min(n_candidates, log_probs.shape[-1]))
    return score, token, log_probs[:, special_tokens.eos_id]


def _collect_finished(
    finished: list[list[Hypothesis]], beams: _Beams, candidates: _Candidates, eos: int, beam_width: int, alpha: float
) -> None:
    """Keep the extensions that end, the best `beam_width` of each sentence."""
    ended = (candidates.token == eos) & (candidates.cum_log_prob > -torch.inf)
    for b, c in ended.nonzero().tolist():
        beam = candidates.beam[b, c]
        ids = [*beams.ids[b, beam].tolist(), eos]
        scores = [*beams.log_probs[b, beam].tolist(), candidates.log_prob[b, c].item()]
        kept = finished[int(beams.sentence_index[b])]
        kept.append(make_hypothesis(ids, scores, alpha, is_truncated=len(ids) == int(beams.max_length[b])))
        kept.sort(key=lambda h: h.score, reverse=True)
        del kept[beam_width:]


def _select_next_beams(candidates: _Candidates, eos: int, beam_width: int) -> _Candidates:
    """Return the extensions that become the next beams; where too few are left, impossible ones fill the width."""
    unfinished = candidates.cum_log_prob.masked_fill(candidates.token == eos, -torch.inf)
    total, order = unfinished.topk(min(beam_width, unfinished.shape[1]))
    beam, token, score = (part.gather(1, order) for part in (candidates.beam, candidates.token, candidates.log_prob))
    return _Candidates(beam, token, score, total)


def _find_unfinished(
    finished: list[list[Hypothesis]],
    beams: _Beams,
    best_cum_log_probs: Tensor,
    length: int,
    beam_width: int,
    alpha: float,
) -> Int[Tensor, " going"]:
    """Return the sentences that are not finished yet."""
    going = []
    for b, (sentence, limit, total) in enumerate(
        zip(beams.sentence_index.tolist(), beams.max_length.tolist(), best_cum_log_probs.tolist(), strict=True)
    ):
        if math.isnan(total):  # topk puts NaN first, so it is here if anywhere
            raise NonFiniteError
        kept = finished[sentence]
        beaten = len(kept) == beam_width and total / length_penalty(length, alpha) <= kept[-1].score
        if length < limit and total > -torch.inf and not beaten:
            going.append(b)
    return torch.tensor(going, dtype=torch.long, device=best_cum_log_probs.device)


def _advance_beams(beams: _Beams, selected: _Candidates, unfinished: Int[Tensor, " going"]) -> Int[Tensor, "going W"]:
    """Write the chosen extensions; returns the rows of the model's state they go on from."""
    beam, token, score = selected.beam[unfinished], selected.token[unfinished], selected.log_prob[unfinished]
    old_width = beams.cum_log_probs.shape[1]
    batch = torch.arange(len(unfinished), device=unfinished.device)[:, None]
    beams.ids = torch.cat((beams.ids[unfinished][batch, beam], token[..., None]), -1)
    beams.log_probs = torch.cat((beams.log_probs[unfinished][batch, beam], score[..., None]), -1)
    beams.cum_log_probs = selected.cum_log_prob[unfinished]
    beams.sentence_index, beams.max_length = beams.sentence_index[unfinished], beams.max_length[unfinished]
    return unfinished[:, None] * old_width + beam
