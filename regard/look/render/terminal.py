"""View data in a terminal: heat maps of shaded cells, small tables, bars and sentences, wrapped to its width.

One map per array: heads are averaged, and of values that accumulate over layers the last layer is shown.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple
from unicodedata import category, east_asian_width

import torch
from jaxtyping import Float
from torch import Tensor

from regard.look.views.titles import array_title, bar_limit
from regard.look.views.view_data import Axis, ViewArray, ViewData

SHADES = " ░▒▓█"
MASKED_CELL = " ··"
CELL_WIDTH = 3
INDENT = "  "
NUMBER_WIDTH = 8
MAX_TOKEN_WIDTH = 14
"""Width of a token label, at most."""
MAX_NAME_WIDTH = 22
"""Width of any other label, at most."""
MAX_HEADING_HEIGHT = 8
"""Height of a column heading, at most."""
MAX_MAP_ROWS = 60
"""Rows of a map, at most; a page shows all."""
BAR_WIDTH, ZERO_LINE = 20, "│"
"""Width of a full bar, and the zero line of signed bars."""
SCIENTIFIC_BELOW = 0.01
"""The largest value below which numbers are written in scientific notation."""
SCATTER_SIZE = (60, 15)
"""Columns and lines of a scatter plot."""


def render_text(view_data: ViewData, width: int | None = None) -> str:
    """Render the sentences of the summary, the arrays, then the other sentences."""
    columns = width or shutil.get_terminal_size().columns
    parts = [line for array in view_data.arrays for line in _render_array(view_data, array, columns)]
    notes = {view: [textwrap.fill(note, columns) for note in notes] for view, notes in view_data.notes.items()}
    summary = notes.pop("summary", [])
    return "\n".join([*summary, *([""] if summary else []), *parts, *chain.from_iterable(notes.values())])


class _RenderedArray(NamedTuple):
    """The title of an array, its lines, and lines between both that describe the axes."""

    title: str
    lines: Iterator[str]
    axes: Sequence[str] = ()


def _render_array(view_data: ViewData, array: ViewArray, terminal_width: int) -> Iterator[str]:
    """Yield the lines of one array under its title; none for errors, labels and eigenvalues."""
    names = [axis.name for axis in array.axes]
    if array.value_kind in ("error", "label") or array.values.numel() == 0 or names == ["layer", "head", "dimension"]:
        return
    labels = [view_data.display_labels(axis, size) for axis, size in zip(array.axes, array.values.shape, strict=True)]
    rendered = _render_values(array, labels, terminal_width)
    yield from textwrap.wrap(rendered.title, terminal_width)
    yield from rendered.axes
    yield from rendered.lines
    yield ""


def _render_values(array: ViewArray, labels: Sequence[Sequence[str]], terminal_width: int) -> _RenderedArray:
    """Render an array by its axes: a heat map, a scatter plot, a table or bars."""
    names, shape = [axis.name for axis in array.axes], array.values.shape
    values, title = array.values.double(), array_title(array)
    rows = [f"layer {label}" for label in labels[0]] if names[0] == "layer" else labels[0]
    if len(names) >= 2 and all(axis.over for axis in array.axes[-2:]):
        return _render_matrix(array, labels, terminal_width)
    if names[-1] == "coordinate":
        where = f", layer {labels[0][-1]}" if names[0] == "layer" else ""
        points = values.flatten(0, -3)[-1] if values.ndim > 2 else values
        return _RenderedArray(f"{title}{where}", _render_scatter(points, terminal_width))
    if names[-1] in ("dimension", "column"):
        some = f", some of {shape[-1]} {names[-1]}s" if shape[-1] > _n_cells_per_line(terminal_width) else ""
        lines = _render_sampled_map(values.reshape(shape[-2:]), labels[-2:], terminal_width)
        return _RenderedArray(f"{title}{some}", lines)
    if names[:2] == ["layer", "head"]:
        return _render_heads(array, rows, labels[1], terminal_width)
    if names == ["method", "k"]:
        return _RenderedArray(title, _render_table(values, rows, [f"k {label}" for label in labels[1]], terminal_width))
    if values.ndim == 2:
        title, values = f"{title}, mean" if shape[1] > 1 else title, values.mean(-1)
    return _RenderedArray(title, _render_bars(values, rows, terminal_width, bar_limit(array)))


def _render_matrix(array: ViewArray, labels: Sequence[Sequence[str]], terminal_width: int) -> _RenderedArray:
    """Render the matrix of the last two axes, reduced over the others; of inputs by outputs, outputs are the rows."""
    values, selection = _reduce_to_matrix(array, labels)
    (down, across), sides = labels[-2:], array.axes[-2:]
    if sides[-1].name == "output":
        values, down, across, sides = values.mT, across, down, sides[::-1]
    label_width = 2 * MAX_TOKEN_WIDTH if sides[0].predicts_next else MAX_TOKEN_WIDTH
    axes = _wrap_indented("rows: {}; columns: {}".format(*map(_describe_axis, sides)), terminal_width)
    lines = _render_heat_map(values, down, across, terminal_width, label_width)
    return _RenderedArray(f"{array_title(array)}{selection}", lines, axes)


def _render_heads(array: ViewArray, layers: Sequence[str], heads: Sequence[str], terminal_width: int) -> _RenderedArray:
    """Render a number for each head as a table, or as one number where all are equal."""
    values, title = _reduce_by_head(array), array_title(array)
    if bool((values == values[0, 0]).all()):
        where = "in every head" if values.numel() > 1 else f"in {layers[0]}, head {heads[0]}"
        return _RenderedArray(f"{title}: {values[0, 0]:.3g} {where}", iter(()))
    return _RenderedArray(title, _render_table(values, layers, [f"head {label}" for label in heads], terminal_width))


def _describe_axis(axis: Axis) -> str:
    """Return the name of an axis with its sides."""
    return axis.name if axis.over == (axis.name,) else f"{axis.name} ({', then '.join(axis.over)})"


def _wrap_indented(text: str, terminal_width: int) -> list[str]:
    """Wrap a text under a title, indented to set it off from the rows below."""
    return textwrap.wrap(text, terminal_width, initial_indent=INDENT, subsequent_indent=INDENT)


def _reduce_by_head(array: ViewArray) -> Float[Tensor, "L H"]:
    """Return one number per head: counts by their maximum over queries, other values by their mean."""
    values = array.values.double()
    if values.ndim > 2:
        values = values.amax(-1) if array.value_kind == "count" else values.mean(-1)
    return values.round(decimals=3)


def _reduce_to_matrix(array: ViewArray, labels: Sequence[Sequence[str]]) -> tuple[Float[Tensor, "R C"], str]:
    """Return one matrix of an array and its description: the mean over heads and layers, or the last layer."""
    values, names = array.values.double(), [axis.name for axis in array.axes[:-2]]
    if names == ["layer"]:
        return values[-1], f", layer {labels[0][-1]}"
    chosen = [f"{name} {label[0]}" for name, label in zip(names, labels, strict=False) if len(label) == 1]
    means = [f"{len(label)} {name}s" for name, label in zip(names, labels, strict=False) if len(label) > 1]
    which_map = ", ".join([*chosen, *(["mean of " + " and ".join(means)] if means else [])])
    return values.flatten(0, -3).mean(0) if names else values, f", {which_map}" if which_map else ""


def _render_heat_map(
    values: Float[Tensor, "R C"],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    terminal_width: int,
    label_width: int = MAX_TOKEN_WIDTH,
) -> Iterator[str]:
    """Render rows of shaded cells under upright column names; in several blocks where it is too wide."""
    limit = float(values.abs().nan_to_num().max()) or 1.0
    margin = max(_display_width(_truncate(row, label_width)) for row in row_labels) + 1
    fitting = max(1, (terminal_width - margin) // CELL_WIDTH)
    headings = _column_headings(column_labels)
    for start in range(0, len(column_labels), fitting):
        names = headings[start : start + fitting]
        height = max(map(len, names))
        for line in range(height):
            letters = (name[line - height] if height - line <= len(name) else " " for name in names)
            yield " " * margin + "".join(" " + _pad(letter, CELL_WIDTH - 1) for letter in letters).rstrip()
        for row, cells in zip(
            row_labels[:MAX_MAP_ROWS], values[:MAX_MAP_ROWS, start : start + fitting].tolist(), strict=True
        ):
            yield (
                _pad(_truncate(row, label_width), margin) + "".join(_shade_cell(cell / limit) for cell in cells)
            ).rstrip()
        if len(row_labels) > MAX_MAP_ROWS:
            yield f"... {len(row_labels) - MAX_MAP_ROWS} more rows; --out F.html shows all"[:terminal_width]
    legend = _shade_legend(limit, signed=bool((values < 0).any()), masked=bool(values.isnan().any()))
    yield from textwrap.wrap(legend, terminal_width)


def _column_headings(names: Sequence[str]) -> list[list[str]]:
    """Return the characters over each column; of numbered names (look/corpus/senses.py) only the number."""
    firsts = [name.partition(" ")[0] for name in names]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    letters = [_split_graphemes(name) for name in (numbers if firsts == numbers else names)]
    return [each if len(each) <= MAX_HEADING_HEIGHT else [*each[: MAX_HEADING_HEIGHT - 1], "…"] for each in letters]


def _shade_cell(fraction: float) -> str:
    if math.isnan(fraction):
        return MASKED_CELL
    shade = SHADES[min(len(SHADES) - 1, int(abs(fraction) * len(SHADES)))]
    return f"{'-' if fraction < 0 and shade != ' ' else ' '}{shade * 2}"


def _shade_legend(limit: float, *, signed: bool, masked: bool = False) -> str:
    steps = [f"{shade * 2} {limit * step / len(SHADES):.2g}" for step, shade in enumerate(SHADES) if step]
    return (
        f"{'  '.join(steps)} to {limit:.2g}"
        + (", - below zero" if signed else "")
        + (f", {MASKED_CELL.strip()} masked" if masked else "")
    )


def _render_sampled_map(
    values: Float[Tensor, "R C"], labels: Sequence[Sequence[str]], terminal_width: int
) -> Iterator[str]:
    """Render as many evenly spaced rows and columns as fit."""
    (rows, across), most = labels, (MAX_MAP_ROWS, _n_cells_per_line(terminal_width))
    down, right = (
        torch.linspace(0, len(names) - 1, min(len(names), fits)).round().long().tolist()
        for names, fits in zip(labels, most, strict=True)
    )
    some = values[down][:, right]
    yield from _render_heat_map(
        some, [rows[index] for index in down], [across[index] for index in right], terminal_width
    )


def _render_scatter(points: Float[Tensor, "N 2"], terminal_width: int) -> Iterator[str]:
    """Render points by their numbers from 1; of coinciding points the first is shown."""
    width, height = min(SCATTER_SIZE[0], terminal_width), SCATTER_SIZE[1]
    span = float((points.amax(0) - points.amin(0)).max()) or 1.0
    middle = (points.amax(0) + points.amin(0)) / 2
    lines = [[" "] * width for _ in range(height)]
    for number in range(len(points), 0, -1):
        across, up = ((points[number - 1] - middle) / span + 0.5).tolist()
        text, line = str(number), lines[round((1 - up) * (height - 1))]
        start = min(round(across * (width - 1)), width - len(text))
        line[start : start + len(text)] = text
    yield from "\n".join("".join(line).rstrip() for line in lines).strip("\n").splitlines()


def _n_cells_per_line(terminal_width: int) -> int:
    """Return the number of cells that fit beside the longest label."""
    return max(1, (terminal_width - MAX_TOKEN_WIDTH - 2) // CELL_WIDTH)


def _render_table(
    values: Float[Tensor, "R C"], row_labels: Sequence[str], column_labels: Sequence[str], terminal_width: int
) -> Iterator[str]:
    """Render a table of numbers, in several blocks where it is too wide."""
    names = [row.replace("_", " ") for row in row_labels]
    margin = min(MAX_NAME_WIDTH, max(map(_display_width, names))) + 1
    fitting = max(1, (terminal_width - margin) // NUMBER_WIDTH)
    whole = bool((values == values.round()).all())
    for start in range(0, len(column_labels), fitting):
        yield " " * margin + "".join(f"{name:>{NUMBER_WIDTH}}" for name in column_labels[start : start + fitting])
        for name, cells in zip(names, values[:, start : start + fitting].tolist(), strict=True):
            numbers = "".join(f"{cell:z{NUMBER_WIDTH}.{0 if whole else 3}f}" for cell in cells)
            yield _pad(_truncate(name, MAX_NAME_WIDTH), margin) + numbers


def _render_bars(
    values: Float[Tensor, " N"], row_labels: Sequence[str], terminal_width: int, limit: float = 0.0
) -> Iterator[str]:
    """Render a number and a bar per line; a full bar is the limit or the largest absolute value.

    A single number without a limit has no bar.
    """
    names = [row.replace("_", " ") for row in row_labels]
    margin = min(MAX_NAME_WIDTH, max(map(_display_width, names))) + 1
    most, least = float(values.abs().max()), float(values.min())
    free_width = terminal_width - margin - NUMBER_WIDTH - 2
    full = max(0, min(BAR_WIDTH, free_width if least >= 0 else (free_width - 1) // 2)) if len(names) > 1 or limit else 0
    by_one = full / (max(limit, most) or 1.0)
    left = round(max(0.0, -least) * by_one)
    written = ".3f" if most >= SCIENTIFIC_BELOW or most == 0 else ".1e"
    for name, value in zip(names, values.tolist(), strict=True):
        bar = "█" * round(abs(value) * by_one)
        if least < 0 and full:
            bar = f"{bar if value < 0 else '':>{left}}{ZERO_LINE}{bar if value >= 0 else ''}"
        yield f"{_pad(_truncate(name, MAX_NAME_WIDTH), margin)}{value:z{NUMBER_WIDTH}{written}}  {bar}".rstrip()


def _truncate(text: str, max_width: int = MAX_TOKEN_WIDTH) -> str:
    """Return the text, shortened to fit."""
    if _display_width(text) <= max_width:
        return text
    kept = ""
    for letter in _split_graphemes(text):
        if _display_width(kept + letter) >= max_width:
            break
        kept += letter
    return kept + "…"


def _split_graphemes(text: str) -> list[str]:
    """Return the characters of a text, each with its combining marks."""
    letters: list[str] = []
    for character in text:
        if letters and not _display_width(character):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _pad(text: str, width: int) -> str:
    return text + " " * max(0, width - _display_width(text))


def _display_width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    return sum(
        0 if category(letter) in ("Mn", "Me", "Cf") else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )
