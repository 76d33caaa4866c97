"""Sentences decoded together, one token each at a time; those that are done leave, others can join at any time.

`EagerBatch` runs any model that has `step` and a state with `select` (and, for others to join, `extend`): sentences are
rows of its tensors, which grow and shrink. graphed_batch.py is its counterpart with a fixed number of slots, for CUDA
graphs; continuous_batching.py keeps either of them full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from regard.generate.beam import Beams, BeamSearch, BeamSearchConfig, SelectedLogits, trace_back
from regard.generate.hypothesis import DecodeStep, Hypothesis, SpecialTokens

Finished = list[tuple[int, list[Hypothesis]]]
"""Handles of sentences that are done, each with its hypotheses, best first."""


SearchStep = DecodeStep | Callable[[Tensor, Any], SelectedLogits]
"""A step that gives the logits of all tokens, or of some."""


class DecodingBatch(Protocol):
    """The interface of a batch to continuous batching."""

    @property
    def n_active(self) -> int:
        """The number of sentences that are not done."""
        ...

    def fits(self, source_length: int, max_length: int) -> bool:
        """Return True if there is memory for such a sentence."""
        ...

    def admit(self, handles: Sequence[int], state: Any, max_lengths: Sequence[int]) -> None:
        """Let sentences join, of which nothing is written yet; `state` is the decoder state of them alone."""
        ...

    def advance(self) -> None:
        """Write one more token of each beam."""
        ...

    def take_finished(self) -> Finished:
        """Return what was finished since the last call."""
        ...

    def cancel(self, handle: int) -> None:
        """Drop a sentence."""
        ...


@dataclass
class _Rows:
    """Sentences with their beams and the state of the model."""

    handles: list[int]
    beams: Beams
    state: Any


class EagerBatch:
    """A batch whose rows are those of the sentences that are not done."""

    def __init__(self, step: SearchStep, config: BeamSearchConfig, device: torch.device) -> None:
        self._step, self._config, self._device = step, config, device
        self._search = BeamSearch(config, 0, device)
        self._rows: _Rows | None = None
        self._finished: Finished = []

    @property
    def n_active(self) -> int:
        return 0 if self._rows is None else len(self._rows.handles)

    def fits(self, source_length: int, max_length: int) -> bool:
        return True

    def admit(self, handles: Sequence[int], state: Any, max_lengths: Sequence[int]) -> None:
        """Write the first token of these sentences, each from one row, and let those join that are not done."""
        longest = max(max_lengths)
        if longest > self._search.max_length:
            self._search = BeamSearch(self._config, longest, self._device)
        limits = torch.tensor(max_lengths, device=self._device)
        start_id = self._config.special_tokens.start_id
        beams = Beams.start(limits, self._config.beam_width, start_id, longest)
        joining = self._advance(_Rows(list(handles), beams, state), 1)
        if self._rows is None or joining is None:
            self._rows = self._rows or joining
            return
        self._rows.state.extend(joining.state)
        self._rows.beams = self._rows.beams.extend(joining.beams)
        self._rows.handles += joining.handles

    def advance(self) -> None:
        if self._rows is not None:
            self._rows = self._advance(self._rows, self._config.beam_width)

    def take_finished(self) -> Finished:
        finished, self._finished = self._finished, []
        return finished

    def cancel(self, handle: int) -> None:
        if self._rows is not None and handle in self._rows.handles:
            going = [i for i, each in enumerate(self._rows.handles) if each != handle]
            width = self._config.beam_width
            beams = torch.arange(width, device=self._device).expand(self.n_active, -1)
            self._rows = self._keep(self._rows, beams, width, going)

    def _advance(self, rows: _Rows, width: int) -> _Rows | None:
        """Write the next token of each row, from `width` beams of each sentence; return those that are not done."""
        logits = self._step(rows.beams.last_token[:, :width].flatten(), rows.state)
        parents = self._search.advance(rows.beams, logits)
        is_done = rows.beams.done.tolist()
        done = [i for i, each in enumerate(is_done) if each]
        if done:
            ended = rows.beams.select(torch.tensor(done, device=self._device)).to("cpu")
            self._finished += zip([rows.handles[i] for i in done], trace_back(ended, self._config), strict=True)
        return self._keep(rows, parents, width, [i for i, each in enumerate(is_done) if not each])

    def _keep(self, rows: _Rows, parents: Int[Tensor, "B W"], width: int, going: list[int]) -> _Rows | None:
        """Return the sentences that go on, their beams continuing `parents`, which were `width` of each sentence."""
        if not going:
            return None
        leaves = len(going) < len(rows.handles)
        if not leaves and parents.shape[1] == 1:
            return rows  # each sentence continues its only beam
        selected = torch.tensor(going, device=self._device)
        rows.state.select(selected[:, None] * width + parents[selected])
        beams = rows.beams.select(selected) if leaves else rows.beams
        return _Rows([rows.handles[i] for i in going], beams, rows.state)


def beam_search(
    step: DecodeStep,
    state: Any,
    max_lengths: Int[Tensor, " B"],
    special_tokens: SpecialTokens,
    *,
    beam_width: int,
    alpha: float,
) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence, best first, at most `beam_width` each."""
    batch = EagerBatch(step, BeamSearchConfig.beam(special_tokens, beam_width, alpha), max_lengths.device)
    if len(max_lengths):
        batch.admit(range(len(max_lengths)), state, max_lengths.tolist())
    while batch.n_active:
        batch.advance()
    return [hypotheses for _, hypotheses in sorted(batch.take_finished(), key=lambda each: each[0])]
