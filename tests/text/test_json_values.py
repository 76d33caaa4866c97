"""Values of JSON in messages: as JSON, and never more than a line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regard.text.json_values import MAX_SHOWN_CHARACTERS, show_json


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "null"),
        ("two\nlines", r'"two\nlines"'),
        ("\ud800", r'"\ud800"'),
        (float("nan"), "NaN"),
        ({"a": [1, "b"]}, '{"a": [1, "b"]}'),
        ("x" * (MAX_SHOWN_CHARACTERS - 2), f'"{"x" * (MAX_SHOWN_CHARACTERS - 2)}"'),
        ("x" * MAX_SHOWN_CHARACTERS, f'"{"x" * (MAX_SHOWN_CHARACTERS - 1)}...'),
        (list(range(10**5)), json.dumps(list(range(99)))[:MAX_SHOWN_CHARACTERS] + "..."),
    ],
)
def test_values_are_shown_as_json(value: Any, shown: str) -> None:
    assert show_json(value) == shown


def test_values_that_json_cannot_write_are_shown_in_part() -> None:
    nested: list[Any] = []
    for _ in range(10**5):
        nested = [nested]
    for value in (10**5000, nested):
        assert 0 < len(show_json(value)) < 200
