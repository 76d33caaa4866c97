"""A sheet in a terminal: maps of shaded cells, small tables and bars, and the sentences; no line is too wide.

A reader takes in a map, not fifty: heads are averaged, and of what builds up from layer to layer the last is shown.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from unicodedata import category, east_asian_width

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.view import Array, Sheet
from regard.look.views import COUNTS, title

SHADES = " ░▒▓█"
CELL = 3
NUMBER = 8
LONGEST = 14
"""Columns that the name of a token may take."""
NAME = 22
"""Columns that the name of anything else may take."""
MOST = 60
"""Rows of a map that are shown; a page shows them all."""
BAR = 20


def drawn(sheet: Sheet, width: int | None = None) -> str:
    """All arrays worth a look, then what there is to say."""
    columns = width or shutil.get_terminal_size().columns
    parts = [line for array in sheet.arrays for line in _array(sheet, array, columns)]
    notes = [textwrap.fill(note, columns) for notes in sheet.notes.values() for note in notes]
    return "\n".join([*parts, *notes])


def _array(sheet: Sheet, array: Array, columns: int) -> Iterator[str]:
    """The lines of one array, with a title; none where they would be nothing but numbers."""
    names, shape = [axis.name for axis in array.axes], array.values.shape
    labels = [sheet.labels(axis, size) for axis, size in zip(array.axes, shape, strict=True)]
    values, said = array.values.double(), title(array)
    if array.name == "error" or values.numel() == 0:
        return
    if len(names) >= 2 and all(axis.over for axis in array.axes[-2:]):
        values, how = _one_map(array, labels)
        rows, across = labels[-2:]
        if names[-1] == "output":  # inputs by outputs: a row for each output reads like a text
            values, rows, across = values.mT, across, rows
        lines, said = _map(values, rows, across, columns), f"{said}{how}"
    elif names in (["position", "dimension"], ["layer", "head", "row", "column"]):
        lines = _sampled(values.flatten(0, -3) if values.ndim > 2 else values, labels[-2:], columns)
        said = f"{said}, some of {shape[-1]} {names[-1]}s"
    elif names == ["layer", "head", "dimension"]:
        return
    elif names[:2] == ["layer", "head"]:
        if values.ndim > 2:
            values = values.amax(-1) if array.name in COUNTS else values.mean(-1)
        values = values.round(decimals=3)
        if bool((values == values[0, 0]).all()):
            where = "in every head" if values.numel() > 1 else f"in layer {labels[0][0]}, head {labels[1][0]}"
            lines, said = iter(()), f"{said}: {values[0, 0]:.3g} {where}"
        else:
            lines = _table(values, [f"layer {name}" for name in labels[0]], [f"head {n}" for n in labels[1]], columns)
    elif values.ndim == 2 and names[0] == "layer":
        lines, said = _bars([f"layer {name}" for name in labels[0]], values.mean(-1)), f"{said}, mean"
    elif values.ndim == 2:
        lines = _table(values, labels[0], [f"{names[1]} {name}" for name in labels[1]], columns)
    else:
        lines = _bars([f"layer {name}" for name in labels[0]] if names[0] == "layer" else labels[0], values)
    yield from textwrap.wrap(said, columns)
    yield from lines
    yield ""


def _one_map(array: Array, labels: Sequence[Sequence[str]]) -> tuple[Float[Tensor, "R C"], str]:
    """One map for an array, and which: the mean over heads and layers, or the last layer of what builds up."""
    values, names = array.values.double(), [axis.name for axis in array.axes[:-2]]
    if names == ["layer"]:
        return values[-1], f", layer {labels[0][-1]}"
    chosen = [f"{name} {label[0]}" for name, label in zip(names, labels, strict=False) if len(label) == 1]
    means = [f"{len(label)} {name}s" for name, label in zip(names, labels, strict=False) if len(label) > 1]
    how = ", ".join([*chosen, *(["mean of " + " and ".join(means)] if means else [])])
    return values.flatten(0, -3).mean(0) if names else values, f", {how}" if how else ""


def _map(values: Float[Tensor, "R C"], rows: Sequence[str], across: Sequence[str], columns: int) -> Iterator[str]:
    """Rows of shaded cells under the names of the columns, which stand upright; in parts where it is too wide."""
    limit = float(values.abs().max()) or 1.0
    margin = max(_width(_fit(row)) for row in rows) + 1
    at_once = max(1, (columns - margin) // CELL)
    for start in range(0, len(across), at_once):
        names = [_letters(_fit(name)) for name in across[start : start + at_once]]
        height = max(map(len, names))
        for line in range(height):
            letters = (name[line - height] if height - line <= len(name) else " " for name in names)
            yield " " * margin + "".join(" " + _pad(letter, CELL - 1) for letter in letters).rstrip()
        for row, cells in zip(rows[:MOST], values[:MOST, start : start + at_once].tolist(), strict=True):
            yield (_pad(_fit(row), margin) + "".join(_cell(cell / limit) for cell in cells)).rstrip()
        if len(rows) > MOST:
            yield f"... {len(rows) - MOST} more rows; --out F.html shows all"[:columns]
    yield from textwrap.wrap(_legend(limit, signed=bool((values < 0).any())), columns)


def _cell(share: float) -> str:
    shade = SHADES[min(len(SHADES) - 1, int(abs(share) * len(SHADES)))]
    return f"{'-' if share < 0 and shade != ' ' else ' '}{shade * 2}"


def _legend(limit: float, *, signed: bool) -> str:
    steps = [f"{shade * 2} {limit * step / len(SHADES):.2g}" for step, shade in enumerate(SHADES) if step]
    return f"{'  '.join(steps)} to {limit:.2g}" + (", - below zero" if signed else "")


def _sampled(values: Float[Tensor, "R C"], labels: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """A map of as many rows and columns as fit, at equal distances."""
    rows, across = labels
    fits = max(1, (columns - LONGEST - 2) // CELL)
    some = [
        torch.linspace(0, n - 1, min(n, most)).round().long() for n, most in ((len(rows), MOST), (len(across), fits))
    ]
    yield from _map(
        values[some[0]][:, some[1]], [rows[place] for place in some[0]], [across[place] for place in some[1]], columns
    )


def _table(values: Float[Tensor, "R C"], rows: Sequence[str], across: Sequence[str], columns: int) -> Iterator[str]:
    """Numbers in a grid; in parts where it is too wide."""
    names = [row.replace("_", " ") for row in rows]
    margin = min(NAME, max(map(_width, names))) + 1
    at_once = max(1, (columns - margin) // NUMBER)
    whole = bool((values == values.round()).all())
    for start in range(0, len(across), at_once):
        yield " " * margin + "".join(f"{name:>{NUMBER}}" for name in across[start : start + at_once])
        for name, cells in zip(names, values[:, start : start + at_once].tolist(), strict=True):
            numbers = "".join(f"{cell:{NUMBER}.0f}" if whole else f"{cell:{NUMBER}.3f}" for cell in cells)
            yield _pad(_fit(name, NAME), margin) + numbers


def _bars(names: Sequence[str], values: Float[Tensor, " N"]) -> Iterator[str]:
    """A number and a bar a line; a full bar is 1, or the largest number where that is more."""
    said = [name.replace("_", " ") for name in names]
    margin = min(NAME, max(map(_width, said))) + 1
    limit = max(1.0, float(values.abs().max()))
    for name, value in zip(said, values.tolist(), strict=True):
        bar = "█" * round(abs(value) / limit * BAR)
        yield f"{_pad(_fit(name, NAME), margin)}{value:{NUMBER}.3f}  {bar}".rstrip()


def _fit(text: str, longest: int = LONGEST) -> str:
    """The text, or as much of it as there is room for."""
    if _width(text) <= longest:
        return text
    kept = ""
    for letter in _letters(text):
        if _width(kept + letter) >= longest:
            break
        kept += letter
    return kept + "…"


def _letters(text: str) -> list[str]:
    """The letters of a text, each with the marks upon it."""
    letters: list[str] = []
    for character in text:
        if letters and not _width(character):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _pad(text: str, width: int) -> str:
    return text + " " * max(0, width - _width(text))


def _width(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(
        0 if category(letter) in ("Mn", "Me", "Cf") else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )
