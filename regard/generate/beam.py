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
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import NonFiniteError
from regard.generate.hypothesis import Hypothesis, SpecialTokens, length_penalty, make_hypothesis
from regard.nn.kernels.dispatch import advance_beams, top_log_probs


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


class SelectedLogits(NamedTuple):
    """The logits of some tokens alone, in ascending order of their ids; special tokens are among them."""

    logits: Float[Tensor, "N U"]
    token_ids: Int[Tensor, " U"]


class BeamSearch:
    """The update of beams by one more token of each; its tensors are on a device."""

    def __init__(self, config: BeamSearchConfig, max_length: int, device: torch.device) -> None:
        self.config, self.max_length = config, max_length
        penalties = [length_penalty(length, config.alpha) for length in range(max_length + 2)]
        self.length_penalties = torch.tensor(penalties, dtype=torch.float32, device=device)
        self.suppressed = torch.tensor(
            sorted(set(config.special_tokens.suppressed_ids)), dtype=torch.long, device=device
        )

    def advance(self, beams: Beams, logits: Float[Tensor, "N V"] | SelectedLogits) -> Int[Tensor, "B W"]:
        """Write the next token of each beam, in place; return the beams they go on from.

        There may be logits of the first beam alone, before others are possible. The best extensions of a sentence are
        among the best of each of its beams, so the vocabulary is gone through by row.
        """
        config = self.config
        eos_id = config.special_tokens.eos_id
        if isinstance(logits, SelectedLogits):
            best = self._find_best_selected(*logits)
        else:
            best = top_log_probs(logits, config.n_candidates, eos_id, self.suppressed)
        return advance_beams(beams, *best, self.length_penalties, eos_id, config.n_candidates)

    def _find_best_selected(
        self, logits: Float[Tensor, "N U"], token_ids: Int[Tensor, " U"]
    ) -> tuple[Float[Tensor, "N C"], Int[Tensor, "N C"], Float[Tensor, " N"]]:
        """Return what `top_log_probs` does, of some tokens."""
        eos_column = int(torch.searchsorted(token_ids, self.config.special_tokens.eos_id))
        suppressed = torch.searchsorted(token_ids, self.suppressed)
        score, column, end = top_log_probs(logits, self.config.n_candidates, eos_column, suppressed)
        return score, token_ids[column], end


def trace_back(beams: Beams, config: BeamSearchConfig) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of sentences that are done, on the host, best first.

    Every sentence has at least one, unless its log-probabilities are not numbers: `NonFiniteError`.
    """
    if not len(beams.done):
        return []
    if bool(beams.has_failed.any()):
        raise NonFiniteError
    steps = int(beams.finished_length.max())
    written = (beams.token, beams.parent, beams.log_prob)
    finished = (beams.finished_score, beams.finished_length, beams.finished_beam, beams.finished_log_prob)
    columns = [part[:, :steps] for part in written] + [part[:, : config.n_best] for part in finished]
    sentences = zip(*(column.tolist() for column in [*columns, beams.max_length]), strict=True)
    return [_make_hypotheses(*sentence, config=config) for sentence in sentences]


def _make_hypotheses(
    tokens: Sequence[Sequence[int]],
    parents: Sequence[Sequence[int]],
    log_probs: Sequence[Sequence[float]],
    finished_scores: Sequence[float],
    lengths: Sequence[int],
    finished_beams: Sequence[int],
    finished_log_probs: Sequence[float],
    max_length: int,
    *,
    config: BeamSearchConfig,
) -> list[Hypothesis]:
    """Return the finished hypotheses of one sentence: its steps from the last one back, by the beam of each."""
    hypotheses = []
    for score, length, beam, log_prob in zip(finished_scores, lengths, finished_beams, finished_log_probs, strict=True):
        if score == -torch.inf:
            continue
        ids, token_scores = [config.special_tokens.eos_id], [log_prob]
        for step in range(length - 2, -1, -1):
            ids.append(tokens[step][beam])
            token_scores.append(log_probs[step][beam])
            beam = parents[step][beam]
        is_truncated = length == max_length
        hypotheses.append(make_hypothesis(ids[::-1], token_scores[::-1], config.alpha, is_truncated=is_truncated))
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
