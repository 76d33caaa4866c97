"""Define the update of a beam search in plain PyTorch: what the kernel of advance_beams.py must equal.

What beams and candidates are is told in generate/beam.py, which calls this through dispatch.py. On a CPU, where values
can be looked at for free, a step in which nothing ends is spared the work of ending.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@runtime_checkable
class BeamTensors(Protocol):
    """The tensors of B sentences with W beams each, as generate/beam.py describes them."""

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

    def first(self, n: int) -> _Candidates:
        """Return the best `n`."""
        return _Candidates(*(getattr(self, field.name)[:, :n] for field in fields(self)))


def advance_beams(
    beams: BeamTensors,
    score: Float[Tensor, "N C"],
    token: Int[Tensor, "N C"],
    end: Float[Tensor, " N"],
    length_penalties: Float[Tensor, " T2"],
    eos_id: int,
    n_candidates: int,
) -> Int[Tensor, "B W"]:
    """Write the next token of each beam, in place; return the beams they go on from."""
    length, width = beams.length + 1, beams.last_token.shape[1]
    best = _find_candidates(beams, score, token, end, length, eos_id, n_candidates)
    ends = best.token == eos_id
    penalty = length_penalties[length][:, None]
    if _is_known(~ends) and best.token.shape[1] >= width:
        chosen = best.first(width)
    else:
        _keep_finished(beams, best, ends & ~beams.done[:, None], length, penalty)
        chosen = _select_unfinished(best, ends, width)
    _write(beams, chosen)
    best_total, worst_finished = chosen.cum_log_prob[:, :1], beams.finished_score[:, -1:]
    beaten = (best_total / penalty <= worst_finished) & (worst_finished > -torch.inf)
    goes_on = (best_total > -torch.inf) & ~beaten & (length < beams.max_length)[:, None]
    beams.has_failed |= best.cum_log_prob[:, 0].isnan() & ~beams.done  # topk puts NaN first
    beams.length.copy_(torch.where(beams.done, beams.length, length))
    beams.done |= ~goes_on[:, 0]
    return chosen.beam


def _is_known(claim: Bool[Tensor, ...]) -> bool:
    """Return True if a claim holds everywhere and the host need not wait to know."""
    return claim.device.type == "cpu" and bool(claim.all())


def _find_candidates(
    beams: BeamTensors, score: Tensor, token: Tensor, end: Tensor, length: Tensor, eos_id: int, n_candidates: int
) -> _Candidates:
    """Return the best extensions of each sentence's beams; at the length limit only ``<eos>`` is one."""
    b, per_row = len(length), score.shape[1]
    score, token, end = score.view(b, -1, per_row), token.view(b, -1, per_row), end.view(b, -1, 1)
    if not _is_known(beams.max_length != length):
        at_limit = (beams.max_length == length)[:, None, None]
        only = torch.cat((end, torch.full_like(score[..., 1:], -torch.inf)), -1)
        score, token = torch.where(at_limit, only, score), token.masked_fill(at_limit, eos_id)
    totals = (beams.cum_log_prob[:, : score.shape[1], None] + score).flatten(1)  # (B, W C)
    total, index = totals.topk(min(n_candidates, totals.shape[1]))
    return _Candidates(index // per_row, token.flatten(1).gather(1, index), score.flatten(1).gather(1, index), total)


def _keep_finished(
    beams: BeamTensors, best: _Candidates, ends: Bool[Tensor, "B C"], length: Tensor, penalty: Tensor
) -> None:
    """Keep the extensions that end, the best W of each sentence."""
    possible = ends & (best.cum_log_prob > -torch.inf)
    score = torch.where(possible, best.cum_log_prob / penalty, -torch.inf)
    kept, order = torch.cat((beams.finished_score, score), 1).topk(beams.last_token.shape[1])
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
    missing = width - total.shape[1]
    if missing:
        total = torch.nn.functional.pad(total, (0, missing), value=-torch.inf)
        order = torch.nn.functional.pad(order, (0, missing))
    return replace(best.gather(order), cum_log_prob=total)


def _write(beams: BeamTensors, chosen: _Candidates) -> None:
    """Write the tokens and back-pointers of the next beams."""
    at = (torch.arange(len(beams.length), device=beams.length.device), beams.length)
    beams.token[at], beams.parent[at], beams.log_prob[at] = chosen.token, chosen.beam, chosen.log_prob
    beams.last_token.copy_(chosen.token)
    beams.cum_log_prob.copy_(chosen.cum_log_prob)
