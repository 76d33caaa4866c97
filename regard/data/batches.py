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

from regard.data.order import Placement
from regard.data.packing import spread
from regard.data.store import Column, TokenStore
from regard.data.windows import Windows

IGNORE = -100
"""The target id at a position where nothing is to be predicted (the default of `cross_entropy`)."""

Same = TypeVar("Same", bound="Tensors")


@dataclass(frozen=True)
class Tensors:
    """A dataclass of tensors, and of dataclasses of them, that moves as one: every batch is one."""

    def to(self: Same, device: torch.device | str, *, non_blocking: bool = False) -> Same:
        return self._each(lambda part: part.to(device, non_blocking=non_blocking))

    def pin_memory(self: Same) -> Same:
        return self._each(lambda part: part.pin_memory())

    def _each(self: Same, change: Callable[[Any], Any]) -> Same:
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{k: change(part) for k, part in parts.items() if isinstance(part, Tensor | Tensors)})


@dataclass(frozen=True)
class Rows(Tensors):
    """Packed rows: what stands at each position, in which sentence of its row (0 = empty), and where in it."""

    ids: Int[Tensor, "B T"]
    segment: Int[Tensor, "B T"]
    position: Int[Tensor, "B T"]


@dataclass(frozen=True)
class PartedRows(Rows):
    """Rows whose sentences have two parts, the second of which may be empty: `part` is 0 in the first, 1 in it."""

    part: Int[Tensor, "B T"]


@dataclass(frozen=True)
class TextBatch(Tensors):
    """Rows of texts, and what is to be said of each token, or of each text: the s-th of a row at column s.

    Of `n_read` tokens something is said of `n_tokens`, which may also be texts.
    """

    rows: PartedRows
    labels: Shaped[Tensor, "B _"]
    n_tokens: int
    n_read: int


@dataclass(frozen=True)
class PairBatch(Tensors):
    """Source rows and target rows of the same pairs, equal segments belonging together; `n_tokens` to predict."""

    source: Rows
    target_in: Rows
    target_out: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_read(self) -> int:
        return self.n_tokens


@dataclass(frozen=True)
class NextBatch(Tensors):
    """Rows of texts, and at each of their tokens the one that comes next."""

    rows: Rows
    following: Int[Tensor, "B T"]
    n_tokens: int

    @property
    def n_read(self) -> int:
        return self.n_tokens


def pair_batch(
    store: TokenStore,
    placement: Placement,
    *,
    pad: int,
    sos: int,
    eos: int,
    columns: tuple[str, str] = ("source", "target"),
) -> PairBatch:
    """The pairs of a placement: the target goes in behind its start token and is to come out up to its end token."""
    (source, target), (source_width, width) = (store[name] for name in columns), placement.widths
    target_in = lay(target, placement, width, before=sos, pad=pad)
    to_come, _ = _tokens(target, placement.items, None, eos)  # as many as go in, at the same positions
    return PairBatch(
        source=lay(source, placement, source_width, after=eos, pad=pad),
        target_in=target_in,
        target_out=_pour(to_come, target_in.segment.numpy() > 0, IGNORE).long(),
        n_tokens=len(to_come),
    )


def lay_parts(column: Column, turn: Column, placement: Placement, width: int, *, pad: int) -> PartedRows:
    """The texts of a placement end to end in their rows, special ids included; `turn` says where the second part is.

    A turn is one number for each text: how many of its ids come before the second part.
    """
    rows = lay(column, placement, width, pad=pad)
    turns = turn.ids[turn.offsets[placement.items]].astype(np.int32)
    before = _pour(np.repeat(turns, column.lengths[placement.items]), rows.segment.numpy() > 0, 0)
    return PartedRows(rows.ids, rows.segment, rows.position, ((rows.position >= before) & (rows.segment > 0)).int())


def by_text(values: Shaped[np.ndarray, " items"], placement: Placement, n_texts: int, empty: int | float) -> Tensor:
    """A number for each text of a placement, in the row of the text and the column of its segment (from 0)."""
    table = np.full((placement.n_rows, n_texts), empty, dtype=values.dtype)
    table[placement.rows, _numbers(placement) - 1] = values
    return torch.from_numpy(table)


def next_batch(windows: Windows, placement: Placement, *, pad: int) -> NextBatch:
    """The windows of a placement: of each part all but the last token goes in, all but the first is to come out."""
    ids, (owner, starts, spans) = windows.column.ids, windows.parts(placement.items, placement.epoch)
    rows = _laid(ids[spread(starts, spans)], spans, placement.in_parts(owner), placement.widths[0], pad)
    following = ids[spread(starts + 1, spans)]
    return NextBatch(rows, _pour(following, rows.segment.numpy() > 0, IGNORE).long(), len(following))


def sentences_to_rows(
    sentences: Sequence[Sequence[int]], *, before: int | None = None, after: int | None = None, pad: int
) -> Rows:
    """One sentence per row, as wide as the longest."""
    column, alone = Column.of(sentences), np.arange(len(sentences))
    width = int(column.lengths.max(initial=0)) + (before is not None) + (after is not None)
    placement = Placement(alone, alone, len(sentences), (width,))
    return lay(column, placement, width, before=before, after=after, pad=pad)


def lay(
    column: Column, placement: Placement, width: int, *, before: int | None = None, after: int | None = None, pad: int
) -> Rows:
    """The sentences of a placement end to end in their rows, each with a special id before and after it if asked."""
    tokens, spans = _tokens(column, placement.items, before, after)
    return _laid(tokens, spans, placement, width, pad)


def _laid(
    tokens: Integer[np.ndarray, " total"], spans: Int[np.ndarray, " items"], placement: Placement, width: int, pad: int
) -> Rows:
    """Tokens of items of these lengths, one after another, in the rows of a placement."""
    number = _numbers(placement)
    used = np.bincount(placement.rows, spans, placement.n_rows)
    assert used.max(initial=0) <= width, f"a row of {used.max():.0f} positions laid into a width of {width}"
    taken = np.arange(width) < used[:, None]  # each row from the left, without gaps: so tokens in order fill it
    return Rows(
        ids=_pour(tokens, taken, pad),
        segment=_pour(np.repeat(number, spans), taken, 0),
        position=_pour(spread(np.zeros_like(spans), spans), taken, 0),
    )


def _numbers(placement: Placement) -> Int[np.ndarray, " items"]:
    """The segment of each item in its row, from 1."""
    return np.arange(len(placement.rows)) - np.searchsorted(placement.rows, placement.rows) + 1


def _tokens(
    column: Column, items: Int[np.ndarray, " items"], before: int | None, after: int | None
) -> tuple[Int[np.ndarray, " total"], Int[np.ndarray, " items"]]:
    """The sentences one after another with their special ids, and how many positions each takes."""
    lengths = column.lengths[items]
    spans = lengths + (before is not None) + (after is not None)
    ends = np.cumsum(spans, dtype=np.int64)
    tokens = np.empty(spans.sum(), dtype=np.int32)
    own = np.ones(len(tokens), dtype=bool)
    for special, where in ((before, ends - spans), (after, ends - 1)):
        if special is not None:
            tokens[where], own[where] = special, False
    tokens[own] = column.ids[spread(column.offsets[items], lengths)]
    return tokens, spans


def _pour(values: Integer[np.ndarray, " total"], taken: Bool[np.ndarray, "B T"], empty: int) -> Int[Tensor, "B T"]:
    rows = np.full(taken.shape, empty, dtype=np.int32)
    rows[taken] = values
    return torch.from_numpy(rows)
