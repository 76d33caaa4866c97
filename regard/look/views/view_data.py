"""Views as data: numbers with named axes over the tokens of a text.

Everything `look` shows is a `Sheet` of arrays like these; the page, the figures, the terminal, JSON and CSV are drawn
from the sheet alone, so a new view or a new model needs no new drawing.

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
"""Axes along which tokens give: pieces of one word add up. Along all others a word is the mean of its pieces."""


@dataclass(frozen=True)
class Axis:
    """What lies along one axis of an array: the tokens of some sides, one side after another, or named entries.

    `ahead`: what lies at a token is of the one that is written after it; the first token begins the text and is a
    word by itself.
    """

    name: str
    over: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ahead: bool = False


ValueKind = Literal["amount", "count", "error", "label"]
"""How several numbers become one. Amounts add up or are averaged; errors do so as independent ones do, by their
squares; of counts, the largest stands for all. Labels only tell things apart: they are the colours of a map."""


@dataclass(frozen=True)
class ViewArray:
    """The numbers of a view: of one kind of attention or one stack (or ``""``), by a name of their own.

    Of labels, `names` may say what each of them stands for, from 0.
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
        """As in ``attention.cross.weights``."""
        return ".".join(part for part in (self.view, self.kind, self.name) if part)

    def axis_index(self, name: str) -> int:
        """The place of an axis; -1 where the array has none of that name."""
        return next((place for place, axis in enumerate(self.axes) if axis.name == name), -1)


@dataclass(frozen=True)
class ViewData:
    """What was seen of one text: the tokens of each side, arrays over them, and what there is to say in words.

    `about` holds single facts (model, difference between seen and fused pass, ...); `notes` sentences by view.
    """

    sides: Mapping[str, Sequence[str]]
    arrays: Sequence[ViewArray]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)

    def labels(self, axis: Axis, length: int) -> list[str]:
        """What stands along an axis: tokens, named entries, or numbers from 0."""
        if axis.over:
            return [token for side in axis.over for token in self.sides[side]]
        return list(axis.labels) or [str(number) for number in range(length)]

    def arrays_of(self, view: str) -> Iterator[ViewArray]:
        """The arrays of one view."""
        return (array for array in self.arrays if array.view == view)


def merge_subwords(view_data: ViewData, words: Mapping[str, Sequence[Word]]) -> ViewData:
    """The sheet with pieces merged to words, on every axis over tokens.

    A word gives what its pieces give together, and receives what they receive on average; so rows of attention and
    columns of attribution still sum to 1. A side without `words` is not made of pieces, and stays.
    """
    arrays = [merge_array_subwords(array, words) for array in view_data.arrays]
    texts = {side: [word.text for word in each] for side, each in words.items()}
    return replace(
        view_data, sides={side: texts.get(side, tokens) for side, tokens in view_data.sides.items()}, arrays=arrays
    )


def merge_array_subwords(array: ViewArray, words: Mapping[str, Sequence[Word]]) -> ViewArray:
    """The array with pieces merged to words."""
    values = array.values if array.values.is_floating_point() or array.value_kind == "count" else array.values.double()
    for place, axis in enumerate(array.axes):
        if axis.over and words.keys() >= set(axis.over):
            parts = values.split(_subwords_per_word(axis, words), place)
            values = torch.stack([_merge_subword_values(part, place, axis, array.value_kind) for part in parts], place)
    return replace(array, values=values)


def _subwords_per_word(axis: Axis, words: Mapping[str, Sequence[Word]]) -> list[int]:
    """How many pieces each word has along an axis."""
    sizes = [len(word.token_indices) for side in axis.over for word in words[side]]
    if not axis.ahead:
        return sizes
    assert sizes[0] == 1, sizes
    return [*sizes[1:], 1]  # the first word is not written, and after the last comes one token, the end


def _merge_subword_values(values: Tensor, dim: int, axis: Axis, value_kind: ValueKind) -> Tensor:
    """What the pieces of one word make along an axis."""
    if value_kind == "count":
        return values.amax(dim)
    total = values.sum(dim) if value_kind == "amount" else values.square().sum(dim).sqrt()
    return total if axis.name in SUMMED_AXES else total / values.shape[dim]
