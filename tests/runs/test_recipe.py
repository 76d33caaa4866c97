"""The recipe schema: conditions under which keys have an effect."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from regard.config import declared_conditions
from regard.runs.recipe import recipe_schema
from regard.tasks import TASKS

SCHEMAS = [
    recipe_schema(task, {"model": {"architecture": name}}, "") for task in TASKS.values() for name in task.architectures
]


def accepts(table_class: type, key: str, value: str) -> bool:
    """Return True if a table has the key and, where names are declared for it, the value is one of them."""
    if key not in {field.name for field in dataclasses.fields(table_class)}:
        return False
    hint = typing.get_type_hints(table_class)[key]
    return not value or typing.get_origin(hint) is not typing.Literal or value in typing.get_args(hint)


@pytest.mark.parametrize("table", ["task", "data", "tokenizer", "model", "train"])
def test_every_condition_names_a_key_and_a_value_that_some_recipe_has(table: str) -> None:
    conditions = [
        condition
        for schema in SCHEMAS
        for declared in declared_conditions(schema[table]).values()
        for condition in declared
    ]
    assert conditions or table in ("data", "train")
    for setting in {setting for condition in conditions for setting in condition.settings}:
        name, _, value = setting.partition("=")
        other, _, key = name.partition(".")
        assert any(accepts(schema[other], key, value) for schema in SCHEMAS), setting
