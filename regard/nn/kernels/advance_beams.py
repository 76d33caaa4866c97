"""The update of a beam search after each token, in Triton on a CUDA device: one program for each sentence.

In torch it takes about fifty launches of a few numbers each (plain_beam_update.py), as long as the layers of a model.
Candidates are found best first. Where one of them goes is a matter of counting: an unfinished one to the beam whose
number is that of unfinished ones before it; a finished one behind all hypotheses that score higher.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.triton_support import jit, runs_on, tile_size, tl

MAX_CANDIDATES, MAX_EXTENSIONS = 64, 2048
"""The most candidates of a step, and the most extensions, of all beams of a sentence, that they are chosen from."""

LIMITS = f"at most {MAX_CANDIDATES} candidates among {MAX_EXTENSIONS:,} extensions of a sentence"


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the kernel runs on this device; scores are float32 whatever the precision of the model."""
    return runs_on(device)


def supports(
    beams: Any, score: Tensor, token: Tensor, end: Tensor, length_penalties: Tensor, eos_id: int, n_candidates: int
) -> bool:
    """Return True if the kernel takes such beams."""
    n_extensions = score.numel() // max(len(beams.length), 1)
    fits = n_candidates <= MAX_CANDIDATES and 0 < n_extensions <= MAX_EXTENSIONS and len(beams.length) > 0
    tensors = [getattr(beams, field.name) for field in fields(beams)]
    is_plain = all(each.is_contiguous() for each in tensors)
    is_float32 = all(each.dtype == torch.float32 for each in (score, end, beams.cum_log_prob))
    return fits and is_plain and is_float32 and available(score.device, score.dtype)


def advance_beams(
    beams: Any,
    score: Float[Tensor, "N C"],
    token: Int[Tensor, "N C"],
    end: Float[Tensor, " N"],
    length_penalties: Float[Tensor, " T2"],
    eos_id: int,
    n_candidates: int,
) -> Int[Tensor, "B W"]:
    """Write the next token of each beam, in place; return the beams they go on from."""
    n_sentences, width = beams.last_token.shape
    n_extensions = score.numel() // n_sentences
    n_candidates = min(n_candidates, n_extensions)
    parents = torch.empty_like(beams.last_token)
    _advance_kernel[n_sentences,](
        score.contiguous(), token.contiguous(), end.contiguous(), length_penalties, parents,
        beams.token, beams.parent, beams.log_prob, beams.last_token, beams.cum_log_prob, beams.length,
        beams.max_length, beams.finished_score, beams.finished_length, beams.finished_beam, beams.finished_log_prob,
        beams.done, beams.has_failed,
        beams.token.shape[1], width, score.shape[1], n_extensions, n_candidates, eos_id,
        BLOCK=tile_size(n_extensions), BLOCK_C=tile_size(n_candidates), BLOCK_W=tile_size(width), num_warps=1,
    )  # fmt: skip
    return parents


@jit
def _advance_kernel(  # type: ignore[no-untyped-def]
    score_in, token_in, end_in, penalties, parents_out,
    token_out, parent_out, log_prob_out, last_token, cum_log_prob, length_in_out,
    max_length, finished_score, finished_length, finished_beam, finished_log_prob,
    done_in_out, has_failed,
    n_steps, width, per_beam, n_extensions, n_candidates, eos_id,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Advance one sentence; all that is read is read before anything is written."""
    b = tl.program_id(0).to(tl.int64)
    i, c, w = tl.arange(0, BLOCK), tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_W)
    done = tl.load(done_in_out + b).to(tl.int32)
    length = tl.load(length_in_out + b) + 1
    limit = tl.load(max_length + b)
    penalty = tl.load(penalties + length)  # done sentences may be at their limit: there is one more
    old_score = tl.load(finished_score + b * width + w, mask=w < width, other=float("-inf"))
    old_length = tl.load(finished_length + b * width + w, mask=w < width, other=0)
    old_beam = tl.load(finished_beam + b * width + w, mask=w < width, other=0)
    old_log_prob = tl.load(finished_log_prob + b * width + w, mask=w < width, other=0.0)

    beam, is_first, inside = i // per_beam, i % per_beam == 0, i < n_extensions
    n_beams = n_extensions // per_beam
    score = tl.load(score_in + b * n_extensions + i, mask=inside, other=0.0)
    end = tl.load(end_in + b * n_beams + beam, mask=inside, other=0.0)
    token = tl.load(token_in + b * n_extensions + i, mask=inside, other=0)
    score = tl.where(length == limit, tl.where(is_first, end, float("-inf")), score)
    token = tl.where(length == limit, eos_id, token)
    total = tl.load(cum_log_prob + b * width + beam, mask=inside, other=0.0) + score
    failed = tl.max((inside & (total != total)).to(tl.int32), 0)
    total = tl.where(inside & (total == total), total, float("-inf"))

    c_total, c_log_prob = tl.full([BLOCK_C], float("-inf"), tl.float32), tl.zeros([BLOCK_C], tl.float32)
    c_beam, c_token = tl.zeros([BLOCK_C], tl.int32), tl.full([BLOCK_C], -1, tl.int64)
    taken = i >= n_extensions
    for k in range(n_candidates):
        best = tl.max(tl.where(taken, float("-inf"), total), 0)
        at = tl.min(tl.where((total == best) & ~taken, i, BLOCK), 0)
        c_total, c_beam = tl.where(c == k, best, c_total), tl.where(c == k, at // per_beam, c_beam)
        c_log_prob = tl.where(c == k, tl.sum(tl.where(i == at, score, 0.0), 0), c_log_prob)
        c_token = tl.where(c == k, tl.sum(tl.where(i == at, token, 0), 0), c_token)
        taken = taken | (i == at)

    ends, exists = (c_token == eos_id) & (c < n_candidates), c < n_candidates
    goes = exists & ~ends
    beam_number = tl.sum((goes[None, :] & (c[None, :] < c[:, None])).to(tl.int32), 1)
    n_going = tl.sum(goes.to(tl.int32), 0)
    best_total = tl.max(tl.where(goes, c_total, float("-inf")), 0)

    new_score = tl.where(ends, c_total / penalty, float("-inf"))
    is_new = ends & (c_total > float("-inf"))
    before = is_new[None, :] & (new_score[None, :] > old_score[:, None])
    old_rank = w + tl.sum(before.to(tl.int32), 1)
    behind_old = (old_score[None, :] >= new_score[:, None]) & (w < width)[None, :]
    ahead = is_new[None, :] & (c[None, :] < c[:, None])
    new_rank = tl.sum(behind_old.to(tl.int32), 1) + tl.sum(ahead.to(tl.int32), 1)
    worst_old = tl.max(tl.where((w < width) & (old_rank == width - 1), old_score, float("-inf")), 0)
    worst_new = tl.max(tl.where(is_new & (new_rank == width - 1), new_score, float("-inf")), 0)
    worst = tl.maximum(worst_old, worst_new)
    beaten = (best_total / penalty <= worst) & (worst > float("-inf"))
    stops = (best_total == float("-inf")) | beaten | (length >= limit) | (failed != 0)
    tl.debug_barrier()

    is_active = tl.zeros([BLOCK_W], tl.int32) + done == 0
    c_is_active = tl.zeros([BLOCK_C], tl.int32) + done == 0
    tl.store(parents_out + b * width + w, w.to(tl.int64), mask=(w < width) & ~is_active)
    kept, at_old = (w < width) & (old_rank < width) & is_active, b * width + old_rank
    tl.store(finished_score + at_old, old_score, mask=kept)
    tl.store(finished_length + at_old, old_length, mask=kept)
    tl.store(finished_beam + at_old, old_beam, mask=kept)
    tl.store(finished_log_prob + at_old, old_log_prob, mask=kept)
    added, at_new = is_new & (new_rank < width) & c_is_active, b * width + new_rank
    tl.store(finished_score + at_new, new_score, mask=added)
    tl.store(finished_length + at_new, tl.zeros([BLOCK_C], tl.int64) + length, mask=added)
    tl.store(finished_beam + at_new, c_beam.to(tl.int64), mask=added)
    tl.store(finished_log_prob + at_new, c_log_prob, mask=added)

    chosen, at_beam = goes & (beam_number < width) & c_is_active, beam_number
    step = (b * n_steps + length - 1) * width
    tl.store(token_out + step + at_beam, c_token, mask=chosen)
    tl.store(parent_out + step + at_beam, c_beam.to(tl.int64), mask=chosen)
    tl.store(log_prob_out + step + at_beam, c_log_prob, mask=chosen)
    tl.store(last_token + b * width + at_beam, c_token, mask=chosen)
    tl.store(cum_log_prob + b * width + at_beam, c_total, mask=chosen)
    tl.store(parents_out + b * width + at_beam, c_beam.to(tl.int64), mask=chosen)

    empty = (w >= n_going) & (w < width) & is_active
    nothing = tl.zeros([BLOCK_W], tl.int64)
    tl.store(token_out + step + w, nothing + eos_id, mask=empty)
    tl.store(parent_out + step + w, nothing, mask=empty)
    tl.store(log_prob_out + step + w, tl.zeros([BLOCK_W], tl.float32), mask=empty)
    tl.store(last_token + b * width + w, nothing + eos_id, mask=empty)
    tl.store(cum_log_prob + b * width + w, tl.full([BLOCK_W], float("-inf"), tl.float32), mask=empty)
    tl.store(parents_out + b * width + w, nothing, mask=empty)
    tl.store(length_in_out + b, length - done)
    tl.store(has_failed + b, tl.load(has_failed + b).to(tl.int32) | (failed & (1 - done)))
    tl.store(done_in_out + b, done | stops.to(tl.int32))
