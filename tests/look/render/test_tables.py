"""JSON and CSV: every number in full and at its place, whatever stands in the tokens."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
import torch
from sample_view_data import make_view_data

from regard.look.render.tables import to_csv, to_json
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
            place.append(int(row[axis.name]) if axis.over else labels.index(row[axis.name]))
            if axis.over:
                assert row[f"{axis.name}_token"] == labels[place[-1]]
        assert float(row["value"]) == array.values[tuple(place)].item()
        used = {column for axis in array.axes for column in (axis.name, f"{axis.name}_token")}
        assert not any(row[column] for column in row.keys() - used - {"view", "kind", "name", "value"})
        places.add((array.qualified_name, *place))
    assert len(places) == len(rows)
