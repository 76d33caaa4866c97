"""View data as JSON and as CSV, every number in full.

JSON is one object (docs/look.md has the schema):

    format, version    "regard look", 1
    about              model, text, target, score, difference, merged ...
    sides              the tokens (or words) of each side
    notes              sentences by view
    arrays             [{view, kind, name, axes: [{name, over, labels}], shape, values}], values nested like the axes

CSV has one number a line, and a column for each axis there is; an axis over tokens has a second one with the token. A
text that a spreadsheet would evaluate, such as ``=1+1``, is prefixed with an apostrophe.
"""

from __future__ import annotations

import csv
import re
from itertools import product
from typing import Any

from regard.disk import json_text
from regard.look.views.view_data import ViewArray, ViewData

JSON_VERSION = 2
"""Version of the JSON format, raised when the meaning of a key changes."""

FORMULA = re.compile(r"(?![-+]?\d+(\.\d+)?$)['=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""The beginning of a cell that a spreadsheet may evaluate; a number is harmless, an apostrophe is doubled."""


def to_json(view_data: ViewData) -> str:
    """Return one JSON object on one line."""
    return json_text(
        {
            "format": "regard look",
            "version": JSON_VERSION,
            "about": dict(view_data.about),
            "sides": {side: list(tokens) for side, tokens in view_data.sides.items()},
            "notes": {view: list(notes) for view, notes in view_data.notes.items()},
            "arrays": [
                describe_array(view_data, array) | {"values": array.values.tolist()} for array in view_data.arrays
            ],
        }
    )


def describe_array(view_data: ViewData, array: ViewArray) -> dict[str, Any]:
    """Return the description of an array without its values."""
    return {
        "view": array.view,
        "kind": array.kind,
        "name": array.name,
        "axes": [
            {"name": axis.name, "over": list(axis.over), "labels": [] if axis.over else view_data.labels(axis, length)}
            for axis, length in zip(array.axes, array.values.shape, strict=True)
        ],
        "shape": list(array.values.shape),
    }


class _Lines(list[str]):
    """The rows of a table, which end with a line feed alone."""

    def write(self, row: str) -> None:
        self.append(row.removesuffix("\r\n") + "\n")


def escape_formula(text: str) -> str:
    """Return the text of a cell that no spreadsheet computes; the text itself is what follows an apostrophe."""
    return f"'{text}" if FORMULA.match(text) else text


def to_csv(view_data: ViewData) -> str:
    """Return a table with a header, one row per value."""
    axes = [axis for array in view_data.arrays for axis in array.axes]
    over = {axis.name for axis in axes if axis.over}
    columns = [
        column
        for name in dict.fromkeys(axis.name for axis in axes)
        for column in ((name, f"{name}_token") if name in over else (name,))
    ]
    lines = _Lines()
    # Python before 3.13 quotes a carriage return only if rows end with one.
    table = csv.DictWriter(lines, ["view", "kind", "name", *columns, "value"], restval="", lineterminator="\r\n")
    table.writeheader()
    for array in view_data.arrays:
        labels = [view_data.labels(axis, size) for axis, size in zip(array.axes, array.values.shape, strict=True)]
        head = {"view": array.view, "kind": array.kind, "name": array.name}
        places = product(*(range(size) for size in array.values.shape))
        for position, value in zip(places, array.values.flatten().tolist(), strict=True):
            row: dict[str, Any] = dict(head, value=value)
            for axis, label, number in zip(array.axes, labels, position, strict=True):
                row[axis.name] = number if axis.over else escape_formula(label[number])
                if axis.over:
                    row[f"{axis.name}_token"] = escape_formula(label[number])
            table.writerow(row)
    return "".join(lines)
