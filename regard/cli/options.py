"""Options that mean the same for every verb."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regard.disk import json_text
from regard.errors import ConfigError

Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or mps.")]
Seed = Annotated[int, typer.Option(help="Fixes everything drawn at random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A run directory, or a Hugging Face one.")]
Columns = Annotated[
    str, typer.Option(help="The columns of a table: source,target or text,label; en,fr by header or 1,3 by number.")
]
Column = Annotated[str, typer.Option(help="Of tagged words: the column of the labels, as upos, or a number.")]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Leave out examples with an empty side, and count them.")]

Beam = Annotated[int | None, typer.Option(help="Beam width; 1 is greedy. 4, or as many as wanted, where not given.")]
Alpha = Annotated[float | None, typer.Option(help="Length penalty ((5 + length) / 6)^alpha; 0.6 where not given.")]
Batch = Annotated[int | None, typer.Option(help="Sentences translated at once; 32 where not given.")]


def given(**options: Any) -> dict[str, Any]:
    """The options somebody gave; the others keep the default of whoever takes them."""
    return {name: value for name, value in options.items() if value is not None}


def split(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated option; none for an empty one."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def columns_asked(column: str, columns: str) -> tuple[str, ...]:
    """The columns of --column or of --columns."""
    if column and columns:
        raise ConfigError("both --column and --columns given; tag takes --column, all others --columns")
    return split(column or columns)


def print_json(value: Any) -> None:
    """One object, on one line of stdout."""
    print(json_text(value), flush=True)
