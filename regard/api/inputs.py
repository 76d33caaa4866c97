"""Checks of what a user passes to a model: texts, columns, options; every class of api/ calls these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.errors import InputError


def check_text(text: object) -> str:
    """Return a single text to look at; refuse anything but a str with at least one word."""
    if not isinstance(text, str):
        raise InputError(f"expected one text, a str, found {type(text).__name__}; look at several texts one by one")
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text


def check_is_str(text: object, number: int) -> str:
    """Return the text; refuse anything but a str, such as the NaN of an empty cell."""
    if not isinstance(text, str):
        described = f"{text!r:.40}, a {type(text).__name__}"
        raise InputError(f"text {number:,}, counted from 0: expected a str, found {described}; drop it or replace it")
    return text


def check_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Yield the texts; refuse one that is not a str."""
    for number, text in enumerate(texts):
        yield check_is_str(text, number)


def split_columns(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, given as "text,label" or as a sequence of names or numbers."""
    names = columns.split(",") if isinstance(columns, str) else [str(column) for column in columns]
    return tuple(name.strip() for name in names) if columns else ()


def split_data(data: str | Sequence[str]) -> list[str]:
    """Return the data files as a list; one file may be given as a str."""
    return [str(data)] if isinstance(data, str) or not isinstance(data, Sequence) else [str(path) for path in data]


def refuse_given(options: dict[str, Any], reason: str) -> None:
    """Refuse the options that were given, which are those that are not None."""
    if given := [name for name, value in options.items() if value is not None]:
        raise InputError(f"{reason}; leave out: {', '.join(given)}")
