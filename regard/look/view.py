"""Views as data: numbers with named axes over the tokens of a text.

Everything `look` shows is a `Sheet` of arrays like these; the page, the figures, the terminal, JSON and CSV are drawn
from the sheet alone, so a new view or a new model needs no new drawing.

    attention, encoder, weights      (layer, head, query, key)      query and key over the tokens of the encoder
    attribution, decoder, share      (layer, input, output)         input over source and target, output over target
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Shaped
from torch import Tensor

from regard.text.tokenizer import Word

GIVING = ("key", "input")
"""Axes along which tokens give: pieces of one word add up. Along all others a word is the mean of its pieces."""


@dataclass(frozen=True)
class Axis:
    """What lies along one axis of an array: the tokens of some sides, one side after another, or named entries.

    `ahead`: what lies at a token is of the one that is written after it.
    """

    name: str
    over: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ahead: bool = False


@dataclass(frozen=True)
class Array:
    """The numbers of a view: of one kind of attention or one stack (or ``""``), by a name of their own."""

    view: str
    kind: str
    name: str
    axes: tuple[Axis, ...]
    values: Shaped[Tensor, ...]

    def __post_init__(self) -> None:
        assert self.values.ndim == len(self.axes), (self.values.shape, self.axes)

    @property
    def title(self) -> str:
        """As in ``attention.cross.weights``."""
        return ".".join(part for part in (self.view, self.kind, self.name) if part)

    def axis(self, name: str) -> int:
        """The place of an axis; -1 where the array has none of that name."""
        return next((place for place, axis in enumerate(self.axes) if axis.name == name), -1)


@dataclass(frozen=True)
class Sheet:
    """What was seen of one text: the tokens of each side, arrays over them, and what there is to say in words.

    `about` holds single facts (model, difference between seen and fused pass, ...); `notes` sentences by view.
    """

    sides: Mapping[str, Sequence[str]]
    arrays: Sequence[Array]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)

    def labels(self, axis: Axis, length: int) -> list[str]:
        """What stands along an axis: tokens, named entries, or numbers from 0."""
        if axis.over:
            return [token for side in axis.over for token in self.sides[side]]
        return list(axis.labels) or [str(number) for number in range(length)]

    def of(self, view: str) -> Iterator[Array]:
        """The arrays of one view."""
        return (array for array in self.arrays if array.view == view)


def by_words(sheet: Sheet, words: Mapping[str, Sequence[Word]]) -> Sheet:
    """The sheet with pieces merged to words, on every axis over tokens.

    A word gives what its pieces give together, and receives what they receive on average; so rows of attention and
    columns of attribution still sum to 1.
    """
    arrays = [merged(array, words) for array in sheet.arrays]
    return replace(sheet, sides={side: [word.text for word in words[side]] for side in sheet.sides}, arrays=arrays)


def merged(array: Array, words: Mapping[str, Sequence[Word]]) -> Array:
    """The array with pieces merged to words."""
    values = array.values
    for place, axis in enumerate(array.axes):
        if axis.over:
            values = _along(values, place, axis, words)
    return replace(array, values=values)


def _along(values: Tensor, place: int, axis: Axis, words: Mapping[str, Sequence[Word]]) -> Tensor:
    lengths = [len(word.pieces) for side in axis.over for word in words[side]]
    if axis.ahead:  # the first word is not written, and after the last comes one token, the end
        lengths = [*lengths[1:], 1]
    sizes = torch.tensor(lengths, device=values.device)
    word_of = torch.repeat_interleave(torch.arange(len(sizes), device=values.device), sizes)
    shape = list(values.shape)
    shape[place] = len(sizes)
    numbers = values if values.is_floating_point() else values.double()
    total = numbers.new_zeros(shape).index_add_(place, word_of, numbers)
    if axis.name in GIVING:
        return total
    return total / sizes.view([-1 if dim == place else 1 for dim in range(values.ndim)])
