"""Ranges of accepted numbers: every numeric recipe key and every numeric option declares one.

A dataclass declares the range of a field beside its type, as in ``steps: Annotated[int, Range(1, 10**9)]``, and calls
`check_table` or `check_options` in its `__post_init__`; a single argument is checked by `check_option`. NaN is in no
range, infinity only in one that names it, and no number is so large that arithmetic on it fails later.
"""

from __future__ import annotations

import math
import reprlib
import typing
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from regard.errors import ConfigError, InputError


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, both included unless `excludes` names one of them.

    Two integers as ends admit whole numbers only. `zero` says what 0 stands for.
    """

    least: float
    most: float
    excludes: typing.Literal["", "least", "most"] = ""
    zero: str = ""

    @property
    def is_whole(self) -> bool:
        return isinstance(self.least, int) and isinstance(self.most, int)

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, Integral if self.is_whole else Real):
            return False
        is_end = {"": False, "least": value == self.least, "most": value == self.most}[self.excludes]
        return not is_end and bool(self.least <= value <= self.most)  # type: ignore[operator]

    def __str__(self) -> str:
        least, most = _format_number(self.least), _format_number(self.most)
        zero = f" ({self.zero})" if self.zero else ""
        above = f"at least {least}" if self.least else f"0{zero} or more"
        lower = f"more than {least}" if self.excludes == "least" else above
        upper = f"less than {most}" if self.excludes == "most" else f"at most {most}"
        return lower if self.most == math.inf else f"{lower} and {upper}"

    def describe_expected(self, value: object) -> str:
        """Return what is expected instead of a value outside the range; for a value of another type, also the type."""
        fits = isinstance(value, Integral if self.is_whole else Real) and not isinstance(value, bool)
        return str(self) if fits else f"a {'whole ' if self.is_whole else ''}number, {self}"


MAX_VOCABULARY = 10_000_000
"""Tokens of a vocabulary, at most; the largest in use have a million, word vectors three million words."""

SEED_RANGE = Range(0, 2**63 - 1)
COUNT_RANGE = Range(1, 10**9)
"""Counts that cost nothing by themselves, such as the number of results to keep."""


def check_option(name: str, value: object, accepted: Range) -> None:
    """Refuse an option or argument that is not in its range."""
    if value not in accepted:
        raise InputError(f"{name} {show_value(value)}: expected {accepted.describe_expected(value)}")


def check_options(options: Any) -> None:
    """Refuse options, the fields of a dataclass, that are not in their ranges; None stands for a default."""
    for name, accepted in declared_ranges(options.__class__).items():
        if (value := getattr(options, name)) is not None:
            check_option(name.replace("_", "-"), value, accepted)


def check_table(table: Any, name: str) -> None:
    """Refuse recipe keys, the fields of a dataclass, that are not in their ranges."""
    for key in declared_ranges(table.__class__):
        check_key(table.__class__, key, getattr(table, key), f"{name}.{key}")


def check_key(cls: Any, key: str, value: Any, where: str) -> None:
    """Refuse the value of a recipe key, or one of several, that is neither in its range nor one of its names."""
    accepted = declared_ranges(cls).get(key)
    if accepted is None:
        return
    names = _accepted_names(cls, key)
    for each in value if isinstance(value, tuple) else (value,):
        if each not in accepted and each not in names:
            expected = ", or ".join((accepted.describe_expected(each), *names))
            raise ConfigError(f"{where} = {show_value(each)}; expected {expected}")


class _ShortRepr(reprlib.Repr):
    """The repr of a value of any size and depth, shortened to fit into a line."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**40 else f"a number of about {math.log10(abs(x)):.0f} digits"


def show_value(value: object) -> str:
    """Return a value as a message shows it; of a long, large or deep one a part."""
    return _ShortRepr().repr(value)


@cache
def declared_ranges(cls: type) -> dict[str, Range]:
    """Return the ranges that a dataclass declares, by field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    metadata = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: each for name, annotations in metadata.items() for each in annotations if isinstance(each, Range)}


@cache
def _accepted_names(cls: type, key: str) -> tuple[str, ...]:
    """Return the names that a field accepts beside numbers, as in ``Literal["none", "encoder"] | int``."""
    choices = typing.get_args(typing.get_type_hints(cls)[key])
    literals = [typing.get_args(each) for each in choices if typing.get_origin(each) is typing.Literal]
    return tuple(name for names in literals for name in names)


def _format_number(number: float) -> str:
    return f"{number:g}" if math.isinf(number) or number % 1 else f"{int(number):,}"
