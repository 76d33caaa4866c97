"""Ranges: what is in one, how a refusal reads, and that every numeric recipe key and option declares one."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import DataConfig
from regard.errors import ConfigError, InputError
from regard.generate import DecodingConfig, GenerationConfig
from regard.predict.question_answering import AnswerOptions
from regard.ranges import Range, check_option, check_options, check_table, declared_ranges
from regard.runs.recipe import TrainConfig
from regard.tasks import TASKS
from regard.text.tokenizer_training import TokenizerConfig


@pytest.mark.parametrize(
    ("accepted", "inside", "outside", "text"),
    [
        (Range(1, 9), [1, 9], [0, 10, -1, True, 2.0, "2", None, 10**400], "at least 1 and at most 9"),
        (Range(0, 9, zero="off"), [0], [-1], "0 (off) or more and at most 9"),
        (Range(0.0, 1.0, excludes="least"), [1, 0.5], [0, 0.0, -0.1, math.nan], "more than 0 and at most 1"),
        (Range(0.0, 1.0, excludes="most"), [0, 0.99], [1, 1.0, math.inf, 10**400], "0 or more and less than 1"),
        (Range(0.0, math.inf, excludes="least"), [1e-300, math.inf, 10**400], [0.0, math.nan], "more than 0"),
        (Range(-1e9, 1e9), [-1e9, 0], [math.inf, -math.inf], "at least -1,000,000,000 and at most 1,000,000,000"),
    ],
)
def test_ends_types_and_wording(accepted: Range, inside: list[object], outside: list[object], text: str) -> None:
    assert all(value in accepted for value in inside)
    assert not [value for value in outside if value in accepted]
    assert str(accepted) == text


@given(st.floats() | st.integers())
def test_a_number_is_in_a_range_if_it_lies_between_its_ends(number: float) -> None:
    assert (number in Range(-2.5, 7.25)) == (-2.5 <= number <= 7.25)


@dataclass(frozen=True)
class Table:
    layers: Annotated[Literal["none", "all"] | int, Range(1, 12)] = "none"
    weights: Annotated[tuple[int, ...], Range(1, 5)] = ()
    rate: Annotated[float, Range(0.0, 1.0)] = 0.5


@dataclass(frozen=True)
class Options:
    drop_rate: Annotated[float | None, Range(0.0, 1.0)] = None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 13}, "t.layers = 13; expected at least 1 and at most 12, or none, or all"),
        ({"layers": "some"}, "t.layers = 'some'; expected a whole number, at least 1 and at most 12, or none, or all"),
        ({"weights": (1, 6)}, "t.weights = 6; expected at least 1 and at most 5"),
        ({"rate": math.nan}, "t.rate = nan; expected 0 or more and at most 1"),
        (
            {"layers": 10**400},
            "t.layers = a number of about 400 digits; expected at least 1 and at most 12, or none, or all",
        ),
    ],
)
def test_tables_and_options_are_refused_by_name(changes: dict[str, typing.Any], message: str) -> None:
    table = Table(**changes)
    with pytest.raises(ConfigError) as refused:
        check_table(table, "t")
    assert str(refused.value) == message


def test_options() -> None:
    check_options(Options())
    with pytest.raises(InputError, match=r"^drop-rate 2\.0: expected 0 or more and at most 1$"):
        check_options(Options(drop_rate=2.0))
    with pytest.raises(
        InputError, match=r"^top 'x{25,}\.\.\.x{25,}': expected a whole number, at least 1 and at most 2$"
    ):
        check_option("top", "x" * 90, Range(1, 2))


def _configs() -> list[type]:
    of_tasks = [task.Config for task in TASKS.values()]
    of_models = sorted(
        {family.Config for task in TASKS.values() for family in task.architectures.values()},
        key=lambda each: each.__name__,
    )
    return [
        TrainConfig,
        DataConfig,
        TokenizerConfig,
        *of_tasks,
        *of_models,
        GenerationConfig,
        DecodingConfig,
        AnswerOptions,
    ]


@pytest.mark.parametrize("config", _configs(), ids=lambda config: config.__name__)
def test_every_number_declares_its_range(config: type) -> None:
    hints = typing.get_type_hints(config)
    names = [field.name for field in dataclasses.fields(config)]
    numeric = {name for name in names if {int, float} & {hints[name], *typing.get_args(hints[name])}}
    assert numeric
    assert numeric == declared_ranges(config).keys()
