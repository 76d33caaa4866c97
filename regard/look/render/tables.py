"""View data as JSON and as CSV, every number in full.

JSON is one object (docs/look.md has the schema):

    format, version    "regard look", 1
    about              model, text, target, score, difference, merged ...
    sides              the tokens (or words) of each side
    notes              sentences by view
    arrays             [{view, kind, name, axes: [{name, over, labels}], shape, values}], values nested like the axes

CSV has one number a line, and a column for each axis there is; an axis over tokens has a second one with the token.
"""

from __future__ import annotations

import csv
import io
from itertools import product
from typing import Any

from regard.disk import json_text
from regard.look.views.view_data import ViewArray, ViewData

JSON_VERSION = 2
"""Version of the JSON format, raised when the meaning of a key changes."""


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


def to_csv(view_data: ViewData) -> str:
    """Return a table with a header, one row per value."""
    axes = [axis for array in view_data.arrays for axis in array.axes]
    over = {axis.name for axis in axes if axis.over}
    columns = [
        column
        for name in dict.fromkeys(axis.name for axis in axes)
        for column in ((name, f"{name}_token") if name in over else (name,))
    ]
    out = io.StringIO()
    table = csv.DictWriter(out, ["view", "kind", "name", *columns, "value"], restval="", lineterminator="\n")
    table.writeheader()
    for array in view_data.arrays:
        labels = [view_data.labels(axis, size) for axis, size in zip(array.axes, array.values.shape, strict=True)]
        head = {"view": array.view, "kind": array.kind, "name": array.name}
        places = product(*(range(size) for size in array.values.shape))
        for position, value in zip(places, array.values.flatten().tolist(), strict=True):
            row: dict[str, Any] = dict(head, value=value)
            for axis, label, number in zip(array.axes, labels, position, strict=True):
                row[axis.name] = number if axis.over else label[number]
                if axis.over:
                    row[f"{axis.name}_token"] = label[number]
            table.writerow(row)
    return out.getvalue()
