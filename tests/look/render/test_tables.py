"""JSON and CSV: every number in full and at its place, whatever stands in the tokens."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
import torch
from sample_view_data import make_view_data

from regard.look.render.tables import escape_formula, to_csv, to_json
from regard.look.views.view_data import Axis, ViewArray, ViewData

AWKWARD = ['say "no"', "a,b", "two\nlines", "tab\t;", "", " ", "日本", "▁é", "<0xE2>", "'"]


@pytest.fixture(scope="module")
def data() -> ViewData:
    return make_view_data(source=5, target=4, n_layers=2, n_heads=2, estimate=True)


@pytest.fixture(scope="module")
def awkward() -> ViewData:
    """Tokens that a careless table breaks at, and numbers that a careless one rounds."""
    numbers = torch.rand(2, len(AWKWARD), len(AWKWARD), generator=torch.Generator().manual_seed(0)) ** 20
    axes = (Axis("layer", labels=("5", "7")), Axis("query", ("encoder",)), Axis("key", ("encoder",)))
    arrays = [ViewArray("attention", "encoder", "weights", axes, numbers)]
    arrays.append(ViewArray("other", "", "by_name", (Axis("query"),), torch.tensor([1, 2])))
    return ViewData({"encoder": AWKWARD}, arrays)


def test_json_holds_every_number_and_what_lies_along_the_axes(data: ViewData) -> None:
    found = json.loads(to_json(data))
    assert (found["format"], found["version"]) == ("regard look", 2)
    assert found["sides"] == data.sides
    assert found["notes"] == data.notes
    assert found["about"] == data.about
    for written, array in zip(found["arrays"], data.arrays, strict=True):
        assert (written["view"], written["kind"], written["name"]) == (array.view, array.kind, array.name)
        values = torch.tensor(written["values"], dtype=array.values.dtype).reshape(written["shape"])
        assert torch.equal(values, array.values)
        for axis, size in zip(written["axes"], written["shape"], strict=True):
            tokens = [token for side in axis["over"] for token in found["sides"][side]]
            assert len(axis["labels"] or tokens) == size
    methods = next(array for array in found["arrays"] if array["name"] == "drop")["axes"][0]
    assert methods == {"name": "method", "over": [], "labels": [*methods["labels"][:-1], "random"]}


def test_json_of_awkward_tokens_and_of_what_is_no_number(awkward: ViewData) -> None:
    assert json.loads(to_json(awkward))["sides"]["encoder"] == AWKWARD
    assert "\n" not in to_json(awkward)
    nothing = ViewData({}, [ViewArray("v", "", "n", (Axis("layer"),), torch.tensor([math.nan, math.inf, 1.0]))])
    assert json.loads(to_json(nothing))["arrays"][0]["values"] == [None, None, 1.0]


@pytest.mark.parametrize("which", ["data", "awkward"])
def test_csv_has_every_number_at_its_place(which: str, request: pytest.FixtureRequest) -> None:
    data: ViewData = request.getfixturevalue(which)
    rows = list(csv.DictReader(io.StringIO(to_csv(data), newline="")))
    assert len(rows) == sum(array.values.numel() for array in data.arrays)
    arrays = {(array.view, array.kind, array.name): array for array in data.arrays}
    places = set()
    for row in rows:
        array = arrays[row["view"], row["kind"], row["name"]]
        place = []
        for axis, size in zip(array.axes, array.values.shape, strict=True):
            labels = data.labels(axis, size)
            place.append(int(row[axis.name]) if axis.over else labels.index(row[axis.name].removeprefix("'")))
            if axis.over:
                assert row[f"{axis.name}_token"].removeprefix("'") == labels[place[-1]]
        assert float(row["value"]) == array.values[tuple(place)].item()
        used = {column for axis in array.axes for column in (axis.name, f"{axis.name}_token")}
        assert not any(row[column] for column in row.keys() - used - {"view", "kind", "name", "value"})
        places.add((array.qualified_name, *place))
    assert len(places) == len(rows)


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'=1", "'", "-", "+"]
)
def test_csv_holds_no_formula(text: str) -> None:
    """In Excel, LibreOffice and others a cell that begins like this is computed, or may run a program."""
    data = ViewData({}, [ViewArray("v", "", "n", (Axis("text", labels=(text, "a")),), torch.tensor([-1.5, 1.0]))])
    rows = list(csv.DictReader(io.StringIO(to_csv(data), newline="")))
    assert [row["text"] for row in rows] == [f"'{text}", "a"]
    assert rows[0]["value"] == "-1.5"


@pytest.mark.parametrize("text", ["-1", "+2", "-0.5", "a=1", "", "1-2", "(", "…"])
def test_csv_leaves_other_cells_alone(text: str) -> None:
    assert escape_formula(text) == text
