"""Say what a model is and how it was made: task, parameters, vocabulary, training, the whole recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.cli.options import Json, Model, print_json


def info(model: Model, as_json: Json = False) -> None:
    import regard

    about = regard.load(model, device="cpu").info()
    if as_json:
        print_json(about)
        return
    lines = list(_lines(about))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")


def _lines(part: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Every value by its full name; what is empty is left out."""
    for key, value in part.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{before}{key}.")
        elif value not in ("", (), []):
            yield f"{before}{key}", _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
