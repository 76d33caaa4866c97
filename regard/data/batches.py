"""Packed batches: the input tensors of a model.

Copies ids from a column to the positions that a placement (`order.py`) assigns; no model, no loss, no packing
decisions. Tasks call it to build their batches; decoding and looking inside call `sentences_to_rows`.

    three sentences in one row of eight positions, each followed by <eos> (2), padded with 0:

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
from regard.nn import IGNORE

TensorDataclassT = TypeVar("TensorDataclassT", bound="TensorDataclass")


@dataclass(frozen=True)
class TensorDataclass:
    """A dataclass of tensors, possibly nested, that moves between devices as one: the base of all batches."""

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
    """Packed rows: token ids, the segment of each token (0 = padding), and its position in the segment."""

    ids: Int[Tensor, "B T"]
    segment: Int[Tensor, "B T"]
    position: Int[Tensor, "B T"]


@dataclass(frozen=True)
class SegmentedRows(Rows):
    """Rows of single texts or pairs; `token_type_ids` is 0 in the first text of a pair, 1 in the second."""

    token_type_ids: Int[Tensor, "B T"]


@dataclass(frozen=True)
class EncoderBatch(TensorDataclass):
    """Rows of texts with a label for each token, or for each text: that of segment s in column s - 1.

    `n_tokens` of the `n_input_tokens` tokens (or of the texts) have a label.
    """

    rows: SegmentedRows
    labels: Shaped[Tensor, "B _"]
    n_tokens: int
    n_input_tokens: int


@dataclass(frozen=True)
class Seq2SeqBatch(TensorDataclass):
    """Source and target rows of the same pairs, matched by segment, with `n_tokens` to predict."""

    source: Rows
    target_in: Rows
    target_out: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_input_tokens(self) -> int:
        return self.n_tokens


@dataclass(frozen=True)
class CausalLMBatch(TensorDataclass):
    """Rows of texts; the label of each token is the next token."""

    rows: Rows
    labels: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_input_tokens(self) -> int:
        return self.n_tokens


def build_seq2seq_batch(
    source: Column, target: Column, placement: Placement, *, pad_id: int, sos_id: int, eos_id: int
) -> Seq2SeqBatch:
    """Build the batch of a placement: decoder input after ``<sos>``, labels up to ``<eos>`` (teacher forcing)."""
    source_width, width = placement.widths
    target_in = build_rows(target, placement, width, prefix_id=sos_id, pad_id=pad_id)
    labels, _ = _gather_tokens(target, placement.items, None, eos_id)  # as many as target_in has, at its positions
    return Seq2SeqBatch(
        source=build_rows(source, placement, source_width, suffix_id=eos_id, pad_id=pad_id),
        target_in=target_in,
        target_out=_scatter_into_rows(labels, target_in.segment.numpy() > 0, IGNORE).long(),
        n_tokens=len(labels),
    )


def build_segmented_rows(
    column: Column, token_type_boundary: Int[np.ndarray, " items"], placement: Placement, width: int, *, pad_id: int
) -> SegmentedRows:
    """Build the rows of texts with their special tokens and token types.

    `token_type_boundary` holds one number for each text: how many of its ids have token type 0.
    """
    rows = build_rows(column, placement, width, pad_id=pad_id)
    boundaries = np.repeat(token_type_boundary[placement.items], column.lengths[placement.items])
    boundary = _scatter_into_rows(boundaries, rows.segment.numpy() > 0, 0)
    return SegmentedRows(
        rows.ids, rows.segment, rows.position, ((rows.position >= boundary) & (rows.segment > 0)).int()
    )


def arrange_by_segment(
    values: Shaped[np.ndarray, " items"], placement: Placement, n_segments: int, fill_value: int | float
) -> Tensor:
    """Return one value for each text of a placement, in the row of the text and column segment - 1."""
    table = np.full((placement.n_rows, n_segments), fill_value, dtype=values.dtype)
    table[placement.rows, segment_numbers(placement) - 1] = values
    return torch.from_numpy(table)


def build_label_rows(
    column: Column, placement: Placement, width: int, fill_value: int | float
) -> Shaped[Tensor, "B T"]:
    """Return the label of each token of a placement, in its place; `fill_value` where there is no token."""
    lengths = column.lengths[placement.items]
    used = np.bincount(placement.rows, lengths, placement.n_rows)
    rows = np.full((placement.n_rows, width), fill_value, dtype=column.ids.dtype)
    rows[np.arange(width) < used[:, None]] = column.ids[concatenate_ranges(column.offsets[placement.items], lengths)]
    return torch.from_numpy(rows)


def build_causal_lm_batch(
    windows: LanguageModelWindows, placement: Placement, *, pad_id: int, backward: bool = False
) -> CausalLMBatch:
    """Build the batch of the windows of a placement: the label of each token is the next token.

    Of a backward model every window is read from its end, and the label of a token is the one before it in the text.
    """
    ids, (owner, starts, lengths) = windows.column.ids, windows.segments(placement.items, placement.epoch)
    tokens = concatenate_ranges(starts, lengths)
    if backward:
        tokens = np.repeat(2 * starts + lengths, lengths) - tokens
    rows = _build_rows_from_tokens(ids[tokens], lengths, placement.split_items(owner), placement.widths[0], pad_id)
    labels = ids[tokens - 1 if backward else tokens + 1]
    return CausalLMBatch(rows, _scatter_into_rows(labels, rows.segment.numpy() > 0, IGNORE).long(), len(labels))


def sentences_to_rows(
    sentences: Sequence[Sequence[int]], *, prefix_id: int | None = None, suffix_id: int | None = None, pad_id: int
) -> Rows:
    """Build rows of one sentence each, padded to the longest."""
    column, indices = Column.from_sentences(sentences), np.arange(len(sentences))
    width = int(column.lengths.max(initial=0)) + (prefix_id is not None) + (suffix_id is not None)
    placement = Placement(indices, indices, len(sentences), (width,))
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
    """Build the packed rows of a placement, with a prefix and a suffix token for each sentence if given."""
    tokens, lengths = _gather_tokens(column, placement.items, prefix_id, suffix_id)
    return _build_rows_from_tokens(tokens, lengths, placement, width, pad_id)


def _build_rows_from_tokens(
    tokens: Integer[np.ndarray, " total"],
    lengths: Int[np.ndarray, " items"],
    placement: Placement,
    width: int,
    pad_id: int,
) -> Rows:
    """Build rows from the concatenated tokens of the items of a placement."""
    segments = segment_numbers(placement)
    used = np.bincount(placement.rows, lengths, placement.n_rows)
    assert used.max(initial=0) <= width, f"{used.max():.0f} tokens in a row of width {width}"
    occupied = np.arange(width) < used[:, None]  # rows are filled from the left without gaps, in the order of tokens
    return Rows(
        ids=_scatter_into_rows(tokens, occupied, pad_id),
        segment=_scatter_into_rows(np.repeat(segments, lengths), occupied, 0),
        position=_scatter_into_rows(concatenate_ranges(np.zeros_like(lengths), lengths), occupied, 0),
    )


def segment_numbers(placement: Placement) -> Int[np.ndarray, " items"]:
    """Return the segment of each item in its row, counted from 1."""
    return np.arange(len(placement.rows)) - np.searchsorted(placement.rows, placement.rows) + 1


def _gather_tokens(
    column: Column, items: Int[np.ndarray, " items"], prefix_id: int | None, suffix_id: int | None
) -> tuple[Int[np.ndarray, " total"], Int[np.ndarray, " items"]]:
    """Return the concatenated sentences with their special tokens, and the length of each."""
    n_own = column.lengths[items]
    lengths = n_own + (prefix_id is not None) + (suffix_id is not None)
    ends = np.cumsum(lengths, dtype=np.int64)
    tokens = np.empty(lengths.sum(), dtype=np.int32)
    is_own = np.ones(len(tokens), dtype=bool)
    for special_id, indices in ((prefix_id, ends - lengths), (suffix_id, ends - 1)):
        if special_id is not None:
            tokens[indices], is_own[indices] = special_id, False
    tokens[is_own] = column.ids[concatenate_ranges(column.offsets[items], n_own)]
    return tokens, lengths


def _scatter_into_rows(
    values: Integer[np.ndarray, " total"], occupied: Bool[np.ndarray, "B T"], fill_value: int
) -> Int[Tensor, "B T"]:
    rows = np.full(occupied.shape, fill_value, dtype=np.int32)
    rows[occupied] = values
    return torch.from_numpy(rows)
