"""Tables in the terminal: words aligned left, numbers right."""

from __future__ import annotations

import pytest

from regard.compare.experiment import ResultTable
from regard.compare.terminal import format_table, is_numeric


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1", "", "-2.5", "+3 +- 1"], True),
        (["1", "LSTM"], False),
        (["LSTM", "attention"], False),
        (["", ""], False),
        ([], False),
    ],
)
def test_columns_of_numbers(cells: list[str], numeric: bool) -> None:
    assert is_numeric(cells) is numeric


def test_words_are_left_and_numbers_right() -> None:
    table = ResultTable("Times", ("layer", "seconds", "note"), [("LSTM", "1.5", ""), ("attention", "12.25", "")])
    assert list(format_table(table)) == [
        "Times",
        "layer      seconds  note",
        "LSTM           1.5",
        "attention    12.25",
    ]
