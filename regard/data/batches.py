"""Items laid into rows: the tensors a model takes.

Reads ids from a column where a placement (`order.py`) puts them; no model, no loss, no choice of what goes where.
Tasks call it to make their batches; decoding and looking inside call `sentences_to_rows`.

    three sentences in one row of eight positions, each followed by the end token (2), empty ids 0:

    ids        17  5  2 40  2  9  2  0
    segment     1  1  1  2  2  3  3  0
    position    0  1  2  0  1  0  1  0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer, Shaped
from torch import Tensor

from regard.data.columns import Column
from regard.data.lm_windows import LanguageModelWindows
from regard.data.order import Placement
from regard.data.packing import concatenate_ranges
from regard.data.store import TokenStore

IGNORE = -100
"""The target id at a position where nothing is to be predicted (the default of `cross_entropy`)."""

TensorDataclassT = TypeVar("TensorDataclassT", bound="TensorDataclass")


@dataclass(frozen=True)
class TensorDataclass:
    """A dataclass of tensors, and of dataclasses of them, that moves as one: every batch is one."""

    def to(self: TensorDataclassT, device: torch.device | str, *, non_blocking: bool = False) -> TensorDataclassT:
        return self._map_tensors(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self: TensorDataclassT) -> TensorDataclassT:
        return self._map_tensors(lambda part: part.pin_memory())

    def _map_tensors(self: TensorDataclassT, function: Callable[[Any], Any]) -> TensorDataclassT:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{k: function(part) for k, part in parts.items() if isinstance(part, Tensor | TensorDataclass)}
        )


@dataclass(frozen=True)
class Rows(TensorDataclass):
    """Packed rows: what stands at each position, in which sentence of its row (0 = empty), and where in it."""

    ids: Int[Tensor, "B T"]
    segment: Int[Tensor, "B T"]
    position: Int[Tensor, "B T"]


@dataclass(frozen=True)
class SegmentedRows(Rows):
    """Rows whose sentences have two parts, the second of which may be empty: `part` is 0 in the first, 1 in it."""

    token_type_ids: Int[Tensor, "B T"]


@dataclass(frozen=True)
class EncoderBatch(TensorDataclass):
    """Rows of texts, and what is to be said of each token, or of each text: the s-th of a row at column s.

    Of `n_read` tokens something is said of `n_tokens`, which may also be texts.
    """

    rows: SegmentedRows
    labels: Shaped[Tensor, "B _"]
    n_tokens: int
    n_input_tokens: int


@dataclass(frozen=True)
class Seq2SeqBatch(TensorDataclass):
    """Source rows and target rows of the same pairs, equal segments belonging together; `n_tokens` to predict."""

    source: Rows
    target_in: Rows
    target_out: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_input_tokens(self) -> int:
        return self.n_tokens


@dataclass(frozen=True)
class CausalLMBatch(TensorDataclass):
    """Rows of texts, and at each of their tokens the one that comes next."""

    rows: Rows
    labels: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_input_tokens(self) -> int:
        return self.n_tokens


def build_seq2seq_batch(
    store: TokenStore,
    placement: Placement,
    *,
    pad_id: int,
    sos_id: int,
    eos_id: int,
    columns: tuple[str, str] = ("source", "target"),
) -> Seq2SeqBatch:
    """The pairs of a placement: the target goes in behind its start token and is to come out up to its end token."""
    (source, target), (source_width, width) = (store[name] for name in columns), placement.widths
    target_in = build_rows(target, placement, width, prefix_id=sos_id, pad_id=pad_id)
    to_come, _ = _gather_tokens(target, placement.items, None, eos_id)  # as many as go in, at the same positions
    return Seq2SeqBatch(
        source=build_rows(source, placement, source_width, suffix_id=eos_id, pad_id=pad_id),
        target_in=target_in,
        target_out=_scatter_into_rows(to_come, target_in.segment.numpy() > 0, IGNORE).long(),
        n_tokens=len(to_come),
    )


def build_segmented_rows(
    column: Column, token_type_boundary: Int[np.ndarray, " items"], placement: Placement, width: int, *, pad_id: int
) -> SegmentedRows:
    """Lay the texts of a placement end to end in their rows, special ids included, with their token types.

    `token_type_boundary` has for each text of the column the number of ids before its second part.
    """
    rows = build_rows(column, placement, width, pad_id=pad_id)
    n_first = np.repeat(token_type_boundary[placement.items], column.lengths[placement.items])
    before = _scatter_into_rows(n_first, rows.segment.numpy() > 0, 0)
    return SegmentedRows(rows.ids, rows.segment, rows.position, ((rows.position >= before) & (rows.segment > 0)).int())


def arrange_by_segment(
    values: Shaped[np.ndarray, " items"], placement: Placement, n_segments: int, fill_value: int | float
) -> Tensor:
    """A number for each text of a placement, in the row of the text and the column of its segment (from 0)."""
    table = np.full((placement.n_rows, n_segments), fill_value, dtype=values.dtype)
    table[placement.rows, _segment_numbers(placement) - 1] = values
    return torch.from_numpy(table)


def build_causal_lm_batch(windows: LanguageModelWindows, placement: Placement, *, pad_id: int) -> CausalLMBatch:
    """The windows of a placement: of each part all but the last token goes in, all but the first is to come out."""
    ids, (owner, starts, spans) = windows.column.ids, windows.segments(placement.items, placement.epoch)
    rows = _build_rows_from_tokens(
        ids[concatenate_ranges(starts, spans)], spans, placement.split_items(owner), placement.widths[0], pad_id
    )
    following = ids[concatenate_ranges(starts + 1, spans)]
    return CausalLMBatch(rows, _scatter_into_rows(following, rows.segment.numpy() > 0, IGNORE).long(), len(following))


def sentences_to_rows(
    sentences: Sequence[Sequence[int]], *, prefix_id: int | None = None, suffix_id: int | None = None, pad_id: int
) -> Rows:
    """One sentence per row, as wide as the longest."""
    column, alone = Column.from_sentences(sentences), np.arange(len(sentences))
    width = int(column.lengths.max(initial=0)) + (prefix_id is not None) + (suffix_id is not None)
    placement = Placement(alone, alone, len(sentences), (width,))
    return build_rows(column, placement, width, prefix_id=prefix_id, suffix_id=suffix_id, pad_id=pad_id)


def build_rows(
    column: Column,
    placement: Placement,
    width: int,
    *,
    prefix_id: int | None = None,
    suffix_id: int | None = None,
    pad_id: int,
) -> Rows:
    """The sentences of a placement end to end in their rows, each with a special id before and after it if asked."""
    tokens, spans = _gather_tokens(column, placement.items, prefix_id, suffix_id)
    return _build_rows_from_tokens(tokens, spans, placement, width, pad_id)


def _build_rows_from_tokens(
    tokens: Integer[np.ndarray, " total"],
    lengths: Int[np.ndarray, " items"],
    placement: Placement,
    width: int,
    pad_id: int,
) -> Rows:
    """Tokens of items of these lengths, one after another, in the rows of a placement."""
    number = _segment_numbers(placement)
    used = np.bincount(placement.rows, lengths, placement.n_rows)
    assert used.max(initial=0) <= width, f"a row of {used.max():.0f} positions laid into a width of {width}"
    taken = np.arange(width) < used[:, None]  # each row from the left, without gaps: so tokens in order fill it
    return Rows(
        ids=_scatter_into_rows(tokens, taken, pad_id),
        segment=_scatter_into_rows(np.repeat(number, lengths), taken, 0),
        position=_scatter_into_rows(concatenate_ranges(np.zeros_like(lengths), lengths), taken, 0),
    )


def _segment_numbers(placement: Placement) -> Int[np.ndarray, " items"]:
    """The segment of each item in its row, from 1."""
    return np.arange(len(placement.rows)) - np.searchsorted(placement.rows, placement.rows) + 1


def _gather_tokens(
    column: Column, items: Int[np.ndarray, " items"], prefix_id: int | None, suffix_id: int | None
) -> tuple[Int[np.ndarray, " total"], Int[np.ndarray, " items"]]:
    """The sentences one after another with their special ids, and how many positions each takes."""
    lengths = column.lengths[items]
    spans = lengths + (prefix_id is not None) + (suffix_id is not None)
    ends = np.cumsum(spans, dtype=np.int64)
    tokens = np.empty(spans.sum(), dtype=np.int32)
    own = np.ones(len(tokens), dtype=bool)
    for special, where in ((prefix_id, ends - spans), (suffix_id, ends - 1)):
        if special is not None:
            tokens[where], own[where] = special, False
    tokens[own] = column.ids[concatenate_ranges(column.offsets[items], lengths)]
    return tokens, spans


def _scatter_into_rows(
    values: Integer[np.ndarray, " total"], occupied: Bool[np.ndarray, "B T"], fill_value: int
) -> Int[Tensor, "B T"]:
    rows = np.full(occupied.shape, fill_value, dtype=np.int32)
    rows[occupied] = values
    return torch.from_numpy(rows)
