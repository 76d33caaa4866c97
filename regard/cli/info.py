"""Say what a model is and how it was made: task, parameters, vocabulary, training, the whole recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.cli.options import JsonOption, ModelArgument, print_json


def info(model: ModelArgument, as_json: JsonOption = False) -> None:
    import regard

    about = regard.load(model, device="cpu").info()
    if as_json:
        print_json(about)
        return
    lines = list(_flatten(about))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")


def _flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value by its full name; what is empty is left out."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif value not in ("", (), []):
            yield f"{prefix}{key}", _format_value(value)


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
