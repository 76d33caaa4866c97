"""Panels of a figure: size, axis labels and headings.

A panel shows one array; heat_maps.py, lines.py and scatter.py draw it, and plots/__init__.py arranges panels in rows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from regard.look.views.titles import array_title
from regard.look.views.view_data import Axis, ViewArray, ViewData

MAX_LABEL_LENGTH = 24
"""Characters of a label, at most."""
TITLE_CHARACTERS_PER_INCH = 14
"""Characters of a title per inch."""
GREY = "#666666"

SIGN_DESCRIPTIONS = {
    **dict.fromkeys(("gradient_x_input", "integrated_gradients"), ("raises the {}", "lowers it")),
    **dict.fromkeys(("evidence", "of_text", "of_pair"), ("adds to the cosine", "takes from it")),
}
"""The meaning of positive and negative values, by array name."""

DrawArray = Callable[[Any, ViewData, ViewArray], None]


class ArrayPanel(NamedTuple):
    """An array, the function that draws it, and its size in inches."""

    array: ViewArray
    draw: DrawArray
    width: float
    height: float


def panel_heading(array: ViewArray, width: float) -> str:
    """Return the wrapped heading of a panel, with the layer and head if they are selected."""
    one = [axis for axis in array.axes if axis.name in ("layer", "head") and len(axis.labels) == 1]
    text, letters = (
        ", ".join([array_title(array), *(f"{axis.name} {axis.labels[0]}" for axis in one)]),
        int(TITLE_CHARACTERS_PER_INCH * width),
    )
    n_lines = len(textwrap.wrap(text, letters))
    even = (textwrap.wrap(text, narrower) for narrower in range(max(1, len(text) // n_lines), letters + 1))
    return "\n".join(next(lines for lines in even if len(lines) == n_lines))


def describe_signs(array: ViewArray) -> str:
    """Return the meaning of the colours of signed values, one per line; empty for plain amounts."""
    above, below = SIGN_DESCRIPTIONS.get(array.name, ("above zero", "below"))
    explained = "score" if array.axes[-1].labels == ("score",) else "log-probability"
    text = f"blue {above.format(explained)}"
    if bool((array.values < 0).any()):
        return f"{text},\norange {below}"
    return text if array.name in SIGN_DESCRIPTIONS else ""


def axis_labels(view_data: ViewData, axis: Axis, length: int = 0) -> list[str]:
    """Return the labels along an axis, shortened; numbered names (look/corpus/senses.py) stay whole."""
    labels = view_data.display_labels(axis, length)
    max_length = 2 * MAX_LABEL_LENGTH if axis.predicts_next else MAX_LABEL_LENGTH
    return labels if are_numbered(labels) else [truncate(name, max_length) for name in labels]


def are_numbered(labels: Sequence[str]) -> bool:
    """Return True if labels begin with their numbers, from 1, and a name follows."""
    return all(label.startswith(f"{number} ") for number, label in enumerate(labels, 1))


def balanced_grid(count: int, max_columns: int) -> tuple[int, int]:
    """Return rows and columns for that many small panels, with as few empty cells as possible."""
    rows = -(-count // max_columns)
    return rows, -(-count // rows)


def truncate(text: str, max_length: int) -> str:
    """Return the text, shortened to fit."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"
