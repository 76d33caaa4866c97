"""A lexical shortlist: the few target tokens that a translation may contain, so that a decoder scores no others.

    permitted for a text  =  `common`: special tokens and the most frequent target tokens
                         + `by_source`: for each source token those most often aligned with it
                         + the tokens of the text itself, where both sides share a vocabulary: names are copied

A batch computes the logits of the union of what its texts may contain, and masks for each text what is not its own; so
what is found for a text does not depend on the others. shortlist_learning.py makes shortlists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import CheckpointError
from regard.generate import SelectedLogits
from regard.models.interfaces import Seq2SeqModel
from regard.models.weights import read_tensors, write_tensors
from regard.nn import RowProjector

MODEL_KEY, FIX = "shortlist_of", "learn it again with: regard shortlist"
NAMES = {"common", "by_source"}


@dataclass(frozen=True)
class Shortlist:
    """The tokens that are always permitted, and K more for each source token; those that fill up K are common ones.

    `model` is the fingerprint of the translator that it was learned from.
    """

    common: Int[Tensor, " N"]
    by_source: Int[Tensor, "V K"]
    model: str

    def write(self, path: Path) -> None:
        """Write the file of a shortlist."""
        tensors = {"common": self.common.int(), "by_source": self.by_source.int()}
        write_tensors(path, tensors, {MODEL_KEY: self.model})

    @classmethod
    def read(cls, path: Path, model: str) -> Shortlist:
        """Return what a file holds; refuse the shortlist of another model, by the fingerprint of this one."""
        if not path.exists():
            raise CheckpointError(f"{path}: no such file; make it with: regard shortlist")
        tensors, metadata = read_tensors(path, fix=FIX)
        if MODEL_KEY not in metadata or tensors.keys() != NAMES:
            raise CheckpointError(f"{path}: not a shortlist; {FIX}")
        if metadata[MODEL_KEY] != model:
            raise CheckpointError(f"{path}: the shortlist of another model; {FIX}")
        return cls(tensors["common"].long(), tensors["by_source"].long(), model)

    def check_sizes(self, path: Path, n_source: int, n_target: int) -> None:
        """Refuse ids that the vocabularies of a model do not have."""
        ids = torch.cat((self.common, self.by_source.flatten()))
        fits = self.by_source.ndim == 2 and len(self.by_source) == n_source
        if not fits or not 0 <= int(ids.min()) <= int(ids.max()) < n_target:
            raise CheckpointError(f"{path}: damaged, or not a shortlist; {FIX}")

    def allow(self, sources: Sequence[Sequence[int]], n_target: int, *, is_joint: bool) -> Bool[Tensor, "B V"]:
        """Return the tokens that the translation of each source may contain, of `n_target` in all."""
        permitted = torch.zeros(len(sources), n_target, dtype=torch.bool)
        permitted[:, self.common] = True
        for row, source in zip(permitted, sources, strict=True):
            ids = torch.tensor(source, dtype=torch.long)
            row[self.by_source[ids].flatten()] = True
            if is_joint:
                row[ids] = True
        return permitted


class ShortlistedState:
    """The decoder state of B sentences with W hypotheses each, and the tokens that may continue each sentence.

    The output projection of `state` has the rows of the union of them, from the second step on: sentences take the
    first by themselves before they join others, and to gather rows costs as much as a few steps.
    """

    def __init__(self, state: Any, permitted: Bool[Tensor, "B V"], project: RowProjector) -> None:
        self.state, self._permitted, self._project, self._width = state, permitted, project, 1
        self._token_ids = torch.arange(permitted.shape[1])
        self._has_stepped = self._has_changed = False

    def step(self, model: Seq2SeqModel, tokens: Int[Tensor, " N"]) -> SelectedLogits:
        """Return the logits of the union, in which each sentence has those of its own tokens."""
        if self._has_changed:
            self._token_ids = self._permitted.any(0).nonzero()[:, 0]
            self.state.output_projection = self._project(self._token_ids)
        self._has_changed = not self._has_stepped
        self._has_stepped = True
        logits = model.step(tokens, self.state)
        excluded = ~self._permitted[:, self._token_ids]
        logits.view(len(excluded), -1, len(self._token_ids)).masked_fill_(excluded[:, None], -torch.inf)
        return SelectedLogits(logits, self._token_ids)

    def select(self, rows: Int[Tensor, "B W"]) -> None:
        """Keep these hypotheses, numbered over all sentences; each row of `rows` is those of one sentence."""
        self._permitted = self._permitted[rows[:, 0] // self._width]
        self._width = rows.shape[1]
        self.state.select(rows)

    def extend(self, other: ShortlistedState) -> None:
        """Let the sentences of another state join, which has as many hypotheses of each."""
        self.state.extend(other.state)
        self._permitted = torch.cat((self._permitted, other._permitted))
        self._has_changed = True


def make_shortlisted_step(model: Seq2SeqModel) -> Callable[[Tensor, ShortlistedState], SelectedLogits]:
    """Return the decoder step of a model for a `ShortlistedState`."""
    return lambda tokens, state: state.step(model, tokens)
