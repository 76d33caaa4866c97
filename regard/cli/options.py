"""Options that mean the same for every verb."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or mps.")]
Seed = Annotated[int, typer.Option(help="Fixes everything drawn at random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A run directory.")]
Columns = Annotated[
    str, typer.Option(help="The columns of a table that hold source and target: en,fr by header or 1,3 by number.")
]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Leave out pairs with an empty side, and count them.")]


def split(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated option; none for an empty one."""
    return tuple(part.strip() for part in text.split(",")) if text else ()


def print_json(value: Any) -> None:
    """One object, on one line of stdout."""
    print(json.dumps(value, ensure_ascii=False), flush=True)
