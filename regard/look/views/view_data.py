"""View data: numbers with named axes over the tokens of a text.

Everything `look` shows is a `ViewData` of arrays like these; the page, the figures, the terminal, JSON and CSV are
rendered from it alone, so a new view or a new model needs no new rendering code.

    attention, encoder, weights      (layer, head, query, key)      query and key over the tokens of the encoder
    attribution, decoder, share      (layer, input, output)         input over source and target, output over target
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor

from regard.text.subwords import Word

SUMMED_AXES = ("key", "input", "text", "pair")
"""Axes along which the subwords of a word are summed; along all others they are averaged."""


@dataclass(frozen=True)
class Axis:
    """One axis of an array: over the tokens of some sides, one side after another, or over named entries.

    With `predicts_next`, the entry at a token belongs to the token written after it (a decoder's queries and outputs);
    the first token is the start of the sequence and a word of its own.
    """

    name: str
    over: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    predicts_next: bool = False


ValueKind = Literal["amount", "score", "count", "error", "label"]
"""The way several numbers are merged into one: amounts are summed or averaged, errors likewise by their squares, as
independent errors are; scores are averaged; of counts the largest is taken. Labels are group numbers: the colours of a
scatter plot. NaN marks what does not exist: a masked score."""


@dataclass(frozen=True)
class ViewArray:
    """A named array of a view, for one kind of attention or one stack (or ``""``).

    An array of labels may carry the `names` of the groups 0, 1, ...
    """

    view: str
    kind: str
    name: str
    axes: tuple[Axis, ...]
    values: Shaped[Tensor, ...]
    value_kind: ValueKind = "amount"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.values.ndim == len(self.axes), (self.values.shape, self.axes)

    @property
    def qualified_name(self) -> str:
        """Return the dotted name, as in ``attention.cross.weights``."""
        return ".".join(part for part in (self.view, self.kind, self.name) if part)

    def axis_index(self, name: str) -> int:
        """Return the index of the axis of that name, or -1."""
        return next((index for index, axis in enumerate(self.axes) if axis.name == name), -1)


@dataclass(frozen=True)
class Focus:
    """The selection a page opens with: a kind of attention, a layer, a head, and one token of each side."""

    kind: str = ""
    layer: int = 0
    head: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewData:
    """The views of one text: the tokens of each side, arrays over them, and sentences by view (`notes`).

    `about` holds single facts (model, difference between the recorded and the fused pass, ...); `next_tokens` the
    tokens a decoder writes after reading each of its own; `focus` the selection a page opens with.
    """

    sides: Mapping[str, Sequence[str]]
    arrays: Sequence[ViewArray]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)
    next_tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    focus: Focus = field(default_factory=Focus)

    def display_labels(self, axis: Axis, length: int) -> list[str]:
        """Return the labels a reader sees; where an axis predicts the next token, ``read → written``."""
        labels = self.labels(axis, length)
        if not axis.predicts_next or not self.next_tokens.keys() >= set(axis.over):
            return labels
        written = [token for side in axis.over for token in self.next_tokens[side]]
        return [f"{read} → {after}" for read, after in zip(labels, written, strict=True)]

    def labels(self, axis: Axis, length: int) -> list[str]:
        """Return the entries along an axis: tokens, named entries, or numbers from 0."""
        if axis.over:
            return [token for side in axis.over for token in self.sides[side]]
        return list(axis.labels) or [str(number) for number in range(length)]

    def arrays_of(self, view: str) -> Iterator[ViewArray]:
        """Iterate over the arrays of one view."""
        return (array for array in self.arrays if array.view == view)


def merge_subwords(view_data: ViewData, words: Mapping[str, Sequence[Word]]) -> ViewData:
    """Return the view data with subwords merged to words, on every axis over tokens.

    Along inputs and keys the subwords of a word are summed, along outputs and queries averaged; so rows of attention
    and columns of attribution still sum to 1. A side that is not in `words` stays as it is.
    """
    arrays = [merge_array_subwords(array, words) for array in view_data.arrays]
    texts = {side: [word.text for word in each] for side, each in words.items()}
    written = {
        side: [*texts[side][1:], tokens[-1]] if side in texts else tokens
        for side, tokens in view_data.next_tokens.items()
    }
    focus = {
        side: _merged_index(index, words[side], side in written) if side in words else index
        for side, index in view_data.focus.tokens.items()
    }
    return replace(
        view_data,
        sides={side: texts.get(side, tokens) for side, tokens in view_data.sides.items()},
        arrays=arrays,
        next_tokens=written,
        focus=replace(view_data.focus, tokens=focus),
    )


def _merged_index(token: int, words: Sequence[Word], predicts_next: bool) -> int:
    """Return the entry of a merged axis that holds the entry of a token."""
    by_token = [number for number, word in enumerate(words) for _ in word.token_indices]
    if predicts_next:
        return by_token[token + 1] - 1 if token + 1 < len(by_token) else len(words) - 1
    return by_token[token]


def merge_array_subwords(array: ViewArray, words: Mapping[str, Sequence[Word]]) -> ViewArray:
    """Return the array with subwords merged to words."""
    values = array.values if array.values.is_floating_point() or array.value_kind == "count" else array.values.double()
    for dim, axis in enumerate(array.axes):
        if axis.over and words.keys() >= set(axis.over):
            parts = values.split(_subwords_per_word(axis, words), dim)
            values = torch.stack([_merge_subword_values(part, dim, axis, array.value_kind) for part in parts], dim)
    return replace(array, values=values)


def _subwords_per_word(axis: Axis, words: Mapping[str, Sequence[Word]]) -> list[int]:
    """Return the number of subwords of each word along an axis."""
    sizes = [len(word.token_indices) for side in axis.over for word in words[side]]
    if not axis.predicts_next:
        return sizes
    assert sizes[0] == 1, sizes
    return [*sizes[1:], 1]  # the start token is never written; after the last word comes one token, the end


def _merge_subword_values(values: Tensor, dim: int, axis: Axis, value_kind: ValueKind) -> Tensor:
    """Merge the values of the subwords of one word along an axis."""
    if value_kind == "count":
        return values.amax(dim)
    if value_kind == "score":
        return values.nanmean(dim)
    total = values.sum(dim) if value_kind == "amount" else values.square().sum(dim).sqrt()
    return total if axis.name in SUMMED_AXES else total / values.shape[dim]
