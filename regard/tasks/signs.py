"""The special tokens of pairs, and pairs of ids laid out as a model takes them, one per row.

translate.py asks its vocabularies for the signs; packed rows are laid by data/batches.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.data.batches import IGNORE, PairBatch, Rows, sentences_to_rows
from regard.generate import Marks
from regard.models.interfaces import PairModel
from regard.text.tokenizer import EOS, PAD, SOS

Ids = Sequence[int]


class Signs(NamedTuple):
    """The special ids of pairs.

        source       first* text end
        target in    start first* text
        target out   first* text end

    Only BART has a `first`. Writing begins behind it; Marian and BART start from a token that has another role too.
    """

    pad: int = PAD
    start: int = SOS
    end: int = EOS
    first: tuple[int, ...] = ()

    @property
    def marks(self) -> Marks:
        """What a search knows of them: it writes neither pads nor starts."""
        before = (self.start, *self.first)
        return Marks(before[-1], self.end, never=tuple({self.pad, self.start} - {self.end}))

    def source(self, ids: Ids) -> list[int]:
        """A text as the encoder reads it."""
        return [*self.first, *ids, self.end]

    def target(self, ids: Ids) -> list[int]:
        """A text as the decoder reads it."""
        return [self.start, *self.first, *ids]

    def wanted(self, ids: Ids) -> list[int]:
        """A text as the decoder should write it."""
        return [*self.first, *ids, self.end]


OURS = Signs()
"""Those of the vocabularies that are learned here."""


def pairs_to_rows(pairs: Sequence[tuple[Ids, Ids]], signs: Signs = OURS) -> PairBatch:
    """Pairs of ids, without special tokens, as a model takes them: one per row."""
    sources, targets = zip(*pairs, strict=True)
    out = sentences_to_rows([signs.wanted(ids) for ids in targets], pad=signs.pad)
    return PairBatch(
        source=sentences_to_rows([signs.source(ids) for ids in sources], pad=signs.pad),
        target_in=sentences_to_rows([signs.target(ids) for ids in targets], pad=signs.pad),
        target_out=out.ids.masked_fill(out.segment == 0, IGNORE).long(),
        n_tokens=int((out.segment > 0).sum()),
    )


def begun(model: PairModel, rows: Rows, signs: Signs) -> Any:
    """A decoder that has read all that stands before a text but the last, with which a search begins."""
    state = model.start(rows)
    for token in (signs.start, *signs.first)[:-1]:
        model.step(rows.ids.new_full((len(rows.ids),), token), state)
    return state
