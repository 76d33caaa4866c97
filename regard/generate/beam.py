"""Beam search in tensors of a fixed size, batched over sentences; nothing in a step waits for the device.

Of every sentence W unfinished continuations live; each step looks at their 2W best extensions, so that the live
ones never run short when up to W of those end:

    sentence 0   beam 0   <sos> Je  vais          -1.2          2W best extensions
                 beam 1   <sos> Je  suis          -1.9    ->    ending in <eos>: finished, kept with their score
                 ...                                            the best W others: the next beams

A sentence is done when it has W finished hypotheses and no live one scores above the worst of them as it stands,
or at its limit, where ``<eos>`` is forced. With one beam and one candidate instead of 2W this is greedy decoding.
Scores have the length penalty of hypothesis.py.

A step writes tokens and back-pointers; a finished hypothesis is its last beam, from which `trace_back` follows them:

    step      0     1     2                     sentences may be at different lengths, so that one that is done can be
    token     Je    vais  bien  <eos>           replaced at once: continuous_batching.py
    parent    0  <- 0  <- 1  <- beam
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import NonFiniteError
from regard.generate.hypothesis import Hypothesis, SpecialTokens, length_penalty, make_hypothesis
from regard.nn.kernels.dispatch import top_log_probs


@dataclass(frozen=True, kw_only=True)
class BeamSearchConfig:
    """A search as the tensors need it: its width, the candidates of a step, the length penalty, the special tokens."""

    special_tokens: SpecialTokens
    beam_width: int
    alpha: float
    n_candidates: int
    n_best: int

    @classmethod
    def greedy(cls, special_tokens: SpecialTokens, alpha: float) -> BeamSearchConfig:
        """Return greedy decoding: the most likely token each time."""
        return cls(special_tokens=special_tokens, beam_width=1, alpha=alpha, n_candidates=1, n_best=1)

    @classmethod
    def beam(
        cls, special_tokens: SpecialTokens, beam_width: int, alpha: float, n_best: int | None = None
    ) -> BeamSearchConfig:
        """Return a beam search of which the best `n_best` hypotheses are wanted, all by default."""
        return cls(
            special_tokens=special_tokens,
            beam_width=beam_width,
            alpha=alpha,
            n_candidates=2 * beam_width,
            n_best=beam_width if n_best is None else n_best,
        )


@dataclass
class _Candidates:
    """The best ways to go on, best first: from which beam, with which token, at which total."""

    beam: Int[Tensor, "B C"]
    token: Int[Tensor, "B C"]
    log_prob: Float[Tensor, "B C"]
    cum_log_prob: Float[Tensor, "B C"]

    def gather(self, order: Int[Tensor, "B W"]) -> _Candidates:
        """Return these candidates of each sentence, in this order."""
        return _Candidates(*(getattr(self, field.name).gather(1, order) for field in fields(self)))


@dataclass
class Beams:
    """The beams of B sentences: T steps of tokens and back-pointers, totals, and the best W that are finished.

    Impossible beams, at -inf, fill the width where there are too few. A finished hypothesis is its length, the beam it
    extends and the log-probability of its ``<eos>``; its score is -inf where there is none. What is `done` stays as it
    is, apart from the step behind its last. `has_failed` says that a log-probability was not a number.
    """

    token: Int[Tensor, "B T W"]
    parent: Int[Tensor, "B T W"]
    log_prob: Float[Tensor, "B T W"]
    last_token: Int[Tensor, "B W"]
    cum_log_prob: Float[Tensor, "B W"]
    length: Int[Tensor, " B"]
    max_length: Int[Tensor, " B"]
    finished_score: Float[Tensor, "B W"]
    finished_length: Int[Tensor, "B W"]
    finished_beam: Int[Tensor, "B W"]
    finished_log_prob: Float[Tensor, "B W"]
    done: Bool[Tensor, " B"]
    has_failed: Bool[Tensor, " B"]

    @classmethod
    def allocate(cls, n_sentences: int, width: int, max_length: int, device: torch.device) -> Beams:
        """Return beams of sentences that are all done, with memory for so many steps."""

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(n_sentences, *shape, dtype=dtype, device=device)

        return cls(
            token=zeros(max_length + 1, width),
            parent=zeros(max_length + 1, width),
            log_prob=zeros(max_length + 1, width, dtype=torch.float32),
            last_token=zeros(width),
            cum_log_prob=zeros(width, dtype=torch.float32),
            length=zeros(),
            max_length=zeros() + 1,
            finished_score=zeros(width, dtype=torch.float32),
            finished_length=zeros(width),
            finished_beam=zeros(width),
            finished_log_prob=zeros(width, dtype=torch.float32),
            done=zeros(dtype=torch.bool) | True,
            has_failed=zeros(dtype=torch.bool),
        )

    @classmethod
    def start(cls, max_length: Int[Tensor, " B"], width: int, start_id: int, capacity: int) -> Beams:
        """Return beams in which nothing is written yet: one each, and impossible ones."""
        beams = cls.allocate(len(max_length), width, capacity, max_length.device)
        beams.last_token.fill_(start_id)
        beams.cum_log_prob[:, 1:] = -torch.inf
        beams.max_length.copy_(max_length)
        beams.finished_score.fill_(-torch.inf)
        beams.done.fill_(False)
        return beams

    def select(self, rows: Int[Tensor, " N"]) -> Beams:
        """Return these sentences in this order."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Beams:
        """Return a copy on another device."""
        copies = {f.name: getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)}
        return replace(self, **copies)

    def extend(self, other: Beams) -> Beams:
        """Return these sentences, then those of `other`."""
        steps = max(self.token.shape[1], other.token.shape[1])
        one, two = self._pad(steps), other._pad(steps)
        return Beams(
            **{field.name: torch.cat((getattr(one, field.name), getattr(two, field.name))) for field in fields(self)}
        )

    def _pad(self, steps: int) -> Beams:
        missing = steps - self.token.shape[1]
        padding = (0, 0, 0, missing)
        padded = {
            name: torch.nn.functional.pad(getattr(self, name), padding) for name in ("token", "parent", "log_prob")
        }
        return replace(self, **padded) if missing else self


class BeamSearch:
    """The update of beams by one more token of each; its tensors are on a device."""

    def __init__(self, config: BeamSearchConfig, max_length: int, device: torch.device) -> None:
        self.config, self.max_length = config, max_length
        penalties = [length_penalty(length, config.alpha) for length in range(max_length + 2)]
        self.length_penalties = torch.tensor(penalties, dtype=torch.float32, device=device)
        self.suppressed = torch.tensor(config.special_tokens.suppressed_ids, dtype=torch.long, device=device)

    def advance(self, beams: Beams, logits: Float[Tensor, "N V"]) -> Int[Tensor, "B W"]:
        """Write the next token of each beam, in place; return the beams they go on from.

        There may be logits of the first beam alone, before others are possible.
        """
        length = beams.length + 1
        best = self._find_candidates(beams, logits, length)
        ends = best.token == self.config.special_tokens.eos_id
        penalty = self.length_penalties[length][:, None]
        self._keep_finished(beams, best, ends & ~beams.done[:, None], length, penalty)
        chosen = _select_unfinished(best, ends, self.config.beam_width)
        _write(beams, chosen)
        best_total = chosen.cum_log_prob[:, :1]
        beaten = (best_total / penalty <= beams.finished_score[:, -1:]) & (beams.finished_score[:, -1:] > -torch.inf)
        goes_on = (best_total > -torch.inf) & ~beaten & (length < beams.max_length)[:, None]
        beams.has_failed |= best.cum_log_prob[:, 0].isnan() & ~beams.done  # topk puts NaN first
        beams.length.copy_(torch.where(beams.done, beams.length, length))
        beams.done |= ~goes_on[:, 0]
        return chosen.beam

    def _find_candidates(self, beams: Beams, logits: Float[Tensor, "N V"], length: Int[Tensor, " B"]) -> _Candidates:
        """Return the best extensions of each sentence's beams; at the length limit only ``<eos>`` is one.

        The best of a sentence are among the best of each of its beams, so the vocabulary is gone through by row.
        """
        b, eos_id, n_candidates = len(length), self.config.special_tokens.eos_id, self.config.n_candidates
        score, token, end = top_log_probs(logits, n_candidates, eos_id, self.suppressed)
        score, token, end = score.view(b, -1, score.shape[1]), token.view(b, -1, score.shape[1]), end.view(b, -1, 1)
        at_limit = (beams.max_length == length)[:, None, None]
        only = torch.cat((end, torch.full_like(score[..., 1:], -torch.inf)), -1)
        score, token = torch.where(at_limit, only, score), token.masked_fill(at_limit, eos_id)
        totals = (beams.cum_log_prob[:, : score.shape[1], None] + score).flatten(1)  # (B, W C)
        total, index = totals.topk(min(n_candidates, totals.shape[1]))
        return _Candidates(
            index // score.shape[-1], token.flatten(1).gather(1, index), score.flatten(1).gather(1, index), total
        )

    def _keep_finished(
        self, beams: Beams, best: _Candidates, ends: Bool[Tensor, "B C"], length: Tensor, penalty: Tensor
    ) -> None:
        """Keep the extensions that end, the best W of each sentence."""
        possible = ends & (best.cum_log_prob > -torch.inf)
        score = torch.where(possible, best.cum_log_prob / penalty, -torch.inf)
        kept, order = torch.cat((beams.finished_score, score), 1).topk(self.config.beam_width)
        beams.finished_score.copy_(kept)
        parts = (
            (beams.finished_length, length[:, None].expand_as(score)),
            (beams.finished_beam, best.beam),
            (beams.finished_log_prob, best.log_prob),
        )
        for part, new in parts:
            part.copy_(torch.cat((part, new), 1).gather(1, order))


def _select_unfinished(best: _Candidates, ends: Bool[Tensor, "B C"], width: int) -> _Candidates:
    """Return the extensions that become the next beams; where too few are left, impossible ones fill the width."""
    unfinished = best.cum_log_prob.masked_fill(ends, -torch.inf)
    total, order = unfinished.topk(min(width, unfinished.shape[1]))
    chosen = replace(best.gather(order), cum_log_prob=total)
    missing = width - total.shape[1]
    if missing:
        total = torch.nn.functional.pad(total, (0, missing), value=-torch.inf)
        chosen = replace(best.gather(torch.nn.functional.pad(order, (0, missing))), cum_log_prob=total)
    return chosen


def _write(beams: Beams, chosen: _Candidates) -> None:
    """Write the tokens and back-pointers of the next beams."""
    at = (torch.arange(len(beams.length), device=beams.length.device), beams.length)
    beams.token[at], beams.parent[at], beams.log_prob[at] = chosen.token, chosen.beam, chosen.log_prob
    beams.last_token.copy_(chosen.token)
    beams.cum_log_prob.copy_(chosen.cum_log_prob)


def trace_back(beams: Beams, config: BeamSearchConfig) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of sentences that are done, on the host, best first.

    Every sentence has at least one, unless its log-probabilities are not numbers: `NonFiniteError`.
    """
    if not len(beams.done):
        return []
    if bool(beams.has_failed.any()):
        raise NonFiniteError
    n_best = config.n_best
    length, beam = beams.finished_length[:, :n_best], beams.finished_beam[:, :n_best]
    steps = int(length.max())
    ids = torch.full((*length.shape, steps), config.special_tokens.eos_id)
    scores = beams.finished_log_prob[:, :n_best, None].repeat(1, 1, steps)
    for step in range(steps - 2, -1, -1):
        written = step < length - 1
        parts = (part[:, step].gather(1, beam) for part in (beams.token, beams.log_prob, beams.parent))
        token, log_prob, parent = (torch.where(written, part, 0) for part in parts)
        ids[..., step] = torch.where(written, token, ids[..., step])
        scores[..., step] = torch.where(written, log_prob, scores[..., step])
        beam = torch.where(written, parent, beam)
    finished = zip(
        ids.tolist(),
        scores.tolist(),
        length.tolist(),
        beams.finished_score.tolist(),
        beams.max_length.tolist(),
        strict=True,
    )
    return [_make_hypotheses(*sentence, config.alpha) for sentence in finished]


def _make_hypotheses(
    ids: Sequence[Sequence[int]],
    token_scores: Sequence[Sequence[float]],
    lengths: Sequence[int],
    finished_scores: Sequence[float],
    max_length: int,
    alpha: float,
) -> list[Hypothesis]:
    hypotheses = [
        make_hypothesis(ids[k][:n], token_scores[k][:n], alpha, is_truncated=n == max_length)
        for k, n in enumerate(lengths)
        if finished_scores[k] > -torch.inf
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
