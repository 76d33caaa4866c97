"""Options that mean the same for every verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regard.disk import json_text
from regard.errors import ConfigError

DeviceOption = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda, cuda:N (GPU N) or mps.")]
SeedOption = Annotated[int, typer.Option(help="Fixes everything drawn at random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A run directory, or a Hugging Face one.")]
ColumnsOption = Annotated[
    str, typer.Option(help="The columns of a table: source,target or text,label; en,fr by header or 1,3 by number.")
]
ColumnOption = Annotated[str, typer.Option(help="Of tagged words: the column of the labels, as upos, or a number.")]
SkipEmptyOption = Annotated[
    bool, typer.Option("--skip-empty", help="Leave out examples with an empty side, and count them.")
]

BeamOption = Annotated[
    int | None, typer.Option(help="Beam width; 1 is greedy. 4, or as many as wanted, where not given.")
]
AlphaOption = Annotated[
    float | None, typer.Option(help="Length penalty ((5 + length) / 6)^alpha; 0.6 where not given.")
]
BatchOption = Annotated[int | None, typer.Option(help="Sentences translated at once; 32 where not given.")]


def drop_none(**options: Any) -> dict[str, Any]:
    """The options somebody gave; the others keep the default of whoever takes them."""
    return {name: value for name, value in options.items() if value is not None}


def split_commas(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated option; none for an empty one."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def parse_columns(column: str, columns: str) -> tuple[str, ...]:
    """The columns of --column or of --columns."""
    if column and columns:
        raise ConfigError("both --column and --columns given; tag takes --column, all others --columns")
    return split_commas(column or columns)


def print_json(value: Any) -> None:
    """One object, on one line of stdout."""
    print(json_text(value), flush=True)
