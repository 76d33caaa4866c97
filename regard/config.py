"""Strict conversion of recipes, TOML tables and ``--set a.b=c``, into frozen dataclasses.

Each table's dataclass lives beside what it configures; ``runs/recipe.py`` gathers them. A recipe may leave out
any key: `check` validates only the keys given. `build` makes the dataclass once every key has a value, and
`dump` writes it back, so the resolved recipe of a run can be read and run again. A key that has no effect beside some
values of others declares it by `AppliesIf`; `applicable_tables` leaves it out of descriptions.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import ConfigError, did_you_mean, has_surrogate
from regard.ranges import check_key, show_value

T = TypeVar("T")
Table = dict[str, Any]
Tables = dict[str, Table]


class AppliesIf:
    """A condition of a recipe key, declared beside its type: without it the key has no effect.

    It holds where one of the `settings` does, as in ``Annotated[int, AppliesIf("task.pooling=attention")]``; a setting
    without a value, as in ``"train.steps"``, holds where the key is known at all. Several conditions must all hold.
    """

    def __init__(self, *settings: str) -> None:
        self.settings = settings

    def holds(self, tables: Tables) -> bool:
        """Return True if one of the settings holds in these tables."""
        return any(self._setting_holds(setting, tables) for setting in self.settings)

    @staticmethod
    def _setting_holds(setting: str, tables: Tables) -> bool:
        name, equals, value = setting.partition("=")
        table, _, key = name.partition(".")
        known = tables.get(table, {})
        return key in known and (not equals or str(known[key]) == value)


IN_TRAINING = AppliesIf("train.steps")
"""The condition of keys that have an effect in training only: models of other libraries have no ``[train]`` table."""


@cache
def declared_conditions(cls: type) -> dict[str, list[AppliesIf]]:
    """Return the conditions that a dataclass declares, by field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        name: [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, AppliesIf)]
        for name, hint in hints.items()
    }


def applicable_tables(tables: Tables, schema: Mapping[str, type]) -> Tables:
    """Return the tables without the keys that have no effect beside the values of the others."""
    return {
        name: {
            key: value
            for key, value in table.items()
            if all(condition.holds(tables) for condition in declared_conditions(schema[name]).get(key, ()))
        }
        for name, table in tables.items()
    }


UNREADABLE_TOML = (ValueError, RecursionError)
"""Raised beside `TOMLDecodeError`: no UTF-8, a NUL in the path, numbers of thousands of digits, deep nesting."""


def read(path: Path) -> Tables:
    """Return the tables of a TOML recipe, not yet checked."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe; without one: regard train TASK DATA") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except UNREADABLE_TOML as error:
        raise ConfigError(f"{path}: cannot be read as a recipe: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read as a recipe: {error.strerror or error}") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: '{name}' is outside a table; write it under one, as in [train]")
    return tables


def override(tables: Tables, settings: list[str]) -> Tables:
    """Return the tables with each ``table.key=value`` applied; the value is TOML, or else plain text."""
    result = {name: dict(table) for name, table in tables.items()}
    for setting in settings:
        name, equals, text = setting.partition("=")
        table, dot, key = name.strip().partition(".")
        if not (equals and dot and table and key):
            raise ConfigError(f"--set {setting}: expected table.key=value, as in train.steps=1000")
        result.setdefault(table, {})[key] = _parse_toml_value(text.strip(), f"--set {name.strip()}")
    return result


def _parse_toml_value(text: str, where: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except UNREADABLE_TOML as error:
        raise ConfigError(f"{where}: not a value: {error}") from None


def check(tables: Tables, schema: Mapping[str, type], where: str) -> Tables:
    """Return the tables with every value converted to its field's type; unknown keys, types and ranges are errors."""
    for name in tables:
        if name not in schema:
            raise ConfigError(f"{where}: unknown table '{name}'; {did_you_mean(name, schema)}")
    return {name: _check_table(table, schema[name], name, where) for name, table in tables.items()}


def _check_table(table: Table, cls: type, name: str, where: str) -> Table:
    hints = typing.get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key '{name}.{key}'; {did_you_mean(key, known, f'{name}.')}")
    converted = {key: _convert(value, hints[key], f"{where}: {name}.{key}") for key, value in table.items()}
    for key, value in converted.items():
        check_key(cls, key, value, f"{where}: {name}.{key}")
    return converted


def accepts(cls: type, key: str, value: Any) -> bool:
    """Return True if a dataclass has this key and the key takes this value."""
    try:
        check({"table": {key: value}}, {"table": cls}, "")
    except ConfigError:
        return False
    return True


def missing_keys(cls: type, table: Table) -> list[str]:
    """Return the keys without a default that the table leaves out."""
    fields = dataclasses.fields(cls)
    required = (f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
    return [name for name in required if name not in table]


def defaults(cls: type) -> Table:
    """Return the default values of a dataclass."""
    fields = dataclasses.fields(cls)
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


def build(cls: type[T], table: Table) -> T:
    """Return the dataclass of a checked table; its `__post_init__` validates the values."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return cls(**given)


def _convert(value: Any, expected: Any, where: str) -> Any:
    """Return the value as the expected type: integers become floats, and lists tuples; nothing else is converted."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        for choice in arguments:
            try:
                return _convert(value, choice, where)
            except ConfigError:
                continue
    elif origin is typing.Literal:
        if value in arguments:
            return value
        raise ConfigError(f"{where} = {show_value(value)}; accepted: {', '.join(map(str, arguments))}")
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, arguments[0], where) for item in value)
    elif origin is tuple and isinstance(value, str):
        return (_convert(value, arguments[0], where),)
    elif expected is float and isinstance(value, int) and not isinstance(value, bool):
        return _convert_to_float(value, where)
    elif expected is str and isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{where} = {show_value(value)}: holds a NUL character; leave it out")
    elif expected is str and isinstance(value, str) and has_surrogate(value):
        raise ConfigError(f"{where} = {show_value(value)}: is not UTF-8; rename what it names")
    elif isinstance(expected, type) and type(value) is expected:
        return value
    mismatch = f"expected {_type_name(expected)}, found {_type_name(type(value))}"
    raise ConfigError(f"{where} = {show_value(value)}; {mismatch}")


def _convert_to_float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{where} = {show_value(value)}; expected less than 1e308") from None


def _type_name(expected: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list"}
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"a list of {names.get(arguments[0], 'values')} each"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(choice) for choice in arguments)
    return names.get(expected, getattr(expected, "__name__", str(expected)))


def to_tables(configs: Mapping[str, object]) -> Tables:
    """Return the dataclasses as plain tables, ready to dump or print as JSON."""
    return {name: dataclasses.asdict(config) for name, config in configs.items()}  # type: ignore[call-overload]


def dump(tables: Tables) -> str:
    """Return the tables as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_format_toml_value(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def format_setting(value: Any) -> str:
    """Return a value as people read it: whole numbers with thousands separators, others in six digits."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _format_toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # DEL is valid in a JSON string, not in a TOML one.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_format_toml_value(item) for item in value)}]"
    return repr(value)
