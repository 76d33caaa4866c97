"""Values of JSON as text: objects of JSONL, and what a key of them holds.

Called by the readers of tables, tagged sentences and questions; json_entries.py reads files of one JSON value.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import DataError, has_surrogate
from regard.ranges import show_value
from regard.text.table_columns import quote_names, suggest_name

MAX_SHOWN_CHARACTERS = 60
"""Characters of a value that a message shows, at most."""


def parse_json_object(path: str | Path, line_number: int, line: str) -> dict[str, Any]:
    """Return the object in a line of JSONL."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"not JSON: {describe_json_error(error)}"
        raise DataError(path, f"{problem}; expected one object a line", line_number) from None
    if not isinstance(entry, dict):
        fix = "expected one object a line; unpack a list with: jq -c '.[]'"
        raise DataError(path, f"{describe_json_type(entry)}, not an object; {fix}", line_number)
    return entry


def get_json_value(path: str | Path, line_number: int, entry: dict[str, Any], key: str) -> Any:
    """Return the value of a key; the error for a missing key names the existing ones."""
    if key not in entry:
        problem = f"no key '{key}'; the line holds {quote_names(list(entry))}"
        raise DataError(path, f"{problem}; {suggest_name(key, list(entry), 'name one of these')}", line_number)
    return entry[key]


def json_value_to_text(
    path: str | Path, line_number: int | None, key: str, value: Any, may_be_number: bool = False
) -> str:
    """Return a value as text: null is empty, and a number or boolean is converted where allowed."""
    if value is None:
        return ""
    if isinstance(value, str):
        if has_surrogate(value):
            half = "half a character (a lone surrogate, \\ud800 to \\udfff)"
            raise DataError(path, f"'{key}' holds {half}; leave that character out", line_number)
        return value
    if may_be_number and isinstance(value, int | float):
        return number_to_text(path, line_number, key, value)
    raise DataError(
        path, f"'{key}' is {describe_json_type(value)}; expected a text{' or a number' * may_be_number}", line_number
    )


def number_to_text(path: str | Path, line_number: int | None, key: str, value: float) -> str:
    """Return 1, 3.8 or true; a non-finite number is an error."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        raise DataError(path, f"'{key}' is {value}; expected a text or a finite number", line_number) from None


def describe_json_type(value: Any) -> str:
    """Return the name of a JSON value's type for messages."""
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


def describe_json_error(error: ValueError | RecursionError) -> str:
    """Return the problem of JSON that cannot be parsed."""
    return "too deeply nested" if isinstance(error, RecursionError) else str(error).lower()


def show_json(value: Any) -> str:
    """Return a value as JSON for messages; of a long, large or deep one a part."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or nested
        return show_value(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."
