"""The special tokens of pairs, and pairs of ids laid out as a model takes them, one per row.

tasks/translate.py takes the ids from its vocabularies, translation.py predicts with them; rows of several pairs, for
training, are packed by data/batches.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from regard.data.batches import Rows, Seq2SeqBatch, sentences_to_rows
from regard.generate import SpecialTokens
from regard.models.interfaces import Seq2SeqModel
from regard.nn import IGNORE
from regard.text.tokenizer import EOS, PAD, SOS

Ids = Sequence[int]


class Seq2SeqSpecialTokens(NamedTuple):
    """The special ids of pairs.

        source       first* text end
        target in    start first* text
        target out   first* text end

    Only BART has a `first`. Generation begins after it; Marian and BART start from a token that has another role too.
    """

    pad_id: int = PAD
    decoder_start_id: int = SOS
    eos_id: int = EOS
    prefix_ids: tuple[int, ...] = ()

    @property
    def decoding_tokens(self) -> SpecialTokens:
        """The special tokens for a search; it never generates padding or start tokens."""
        before = (self.decoder_start_id, *self.prefix_ids)
        return SpecialTokens(
            before[-1], self.eos_id, suppressed_ids=tuple({self.pad_id, self.decoder_start_id} - {self.eos_id})
        )

    def wrap_source(self, ids: Ids) -> list[int]:
        """Return the encoder input of a text."""
        return [*self.prefix_ids, *ids, self.eos_id]

    def wrap_target_in(self, ids: Ids) -> list[int]:
        """Return the decoder input of a text."""
        return [self.decoder_start_id, *self.prefix_ids, *ids]

    def wrap_target_out(self, ids: Ids) -> list[int]:
        """Return the decoder targets of a text."""
        return [*self.prefix_ids, *ids, self.eos_id]


DEFAULT_SPECIAL_TOKENS = Seq2SeqSpecialTokens()
"""Those of the vocabularies that are learned here."""


def pairs_to_rows(
    pairs: Sequence[tuple[Ids, Ids]], special_tokens: Seq2SeqSpecialTokens = DEFAULT_SPECIAL_TOKENS
) -> Seq2SeqBatch:
    """Return a batch of pairs of ids given without special tokens, one per row."""
    sources, targets = zip(*pairs, strict=True)
    out = sentences_to_rows([special_tokens.wrap_target_out(ids) for ids in targets], pad_id=special_tokens.pad_id)
    return Seq2SeqBatch(
        source=sentences_to_rows([special_tokens.wrap_source(ids) for ids in sources], pad_id=special_tokens.pad_id),
        target_in=sentences_to_rows(
            [special_tokens.wrap_target_in(ids) for ids in targets], pad_id=special_tokens.pad_id
        ),
        target_out=out.ids.masked_fill(out.segment == 0, IGNORE).long(),
        n_tokens=int((out.segment > 0).sum()),
    )


def start_decoder(model: Seq2SeqModel, rows: Rows, special_tokens: Seq2SeqSpecialTokens) -> Any:
    """Return a decoder state that has processed all prefix tokens but the last, from which a search starts."""
    state = model.start(rows)
    for token in (special_tokens.decoder_start_id, *special_tokens.prefix_ids)[:-1]:
        model.step(rows.ids.new_full((len(rows.ids),), token), state)
    return state
