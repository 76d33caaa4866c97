"""A file of one JSON value, read entry by entry: the list that it is, or the list under one key of its object.

Only the entry being parsed is in memory, so that the file may be of any size, on one line or many. Called by squad.py;
json_values.py reads objects of JSONL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.text.files import read_text_blocks
from regard.text.json_values import describe_json_error
from regard.text.limits import JSON_FACTOR, max_line_bytes, too_large_error

DECODER = json.JSONDecoder()
WHITE_SPACE = " \t\n\r"
MAX_LITERAL_CHARACTERS = 16
"""Characters of the longest literal or escape: an error this close to the end may only be that more text follows."""


def read_json_entries(path: str | Path, key: str, expected: str) -> Iterator[Any]:
    """Yield the entries of a list, or of the list under `key` of an object; the error for others says `expected`."""
    text = _JsonText(path)
    has_list = text.peek() == "["
    if has_list:
        yield from text.read_list()
    elif text.peek() == "{":
        for name in text.read_names():
            if name == key and text.peek() == "[":
                has_list = True
                yield from text.read_list()
            else:
                text.read_value()
    else:
        text.read_value()
    if text.peek():
        raise text.fault("extra data")
    if not has_list:
        raise DataError(path, expected)


class _JsonText:
    """The text of a file from the value being parsed on."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._blocks = read_text_blocks(path)
        self._text, self._index = "", 0
        self._n_characters_before = self._n_lines_before = 0

    def peek(self) -> str:
        """Return the next character that is no white space; the empty string at the end."""
        while True:
            while self._index < len(self._text):
                if (character := self._text[self._index]) not in WHITE_SPACE:
                    return character
                self._index += 1
            if not self._read_more():
                return ""

    def skip(self, expected: str) -> bool:
        """Skip the next character if it is the expected one."""
        is_expected = self.peek() == expected
        self._index += is_expected
        return is_expected

    def read_list(self) -> Iterator[Any]:
        """Yield the values of a list."""
        self.skip("[")
        while not self.skip("]"):
            yield self.read_value()
            self._skip_comma("]")

    def read_names(self) -> Iterator[str]:
        """Yield the names of an object; the caller reads the value of each."""
        self.skip("{")
        while not self.skip("}"):
            name = self.read_value() if self.peek() == '"' else None
            if name is None or not self.skip(":"):
                raise self.fault("expecting property name enclosed in double quotes and ':'")
            yield name
            self._skip_comma("}")

    def _skip_comma(self, closing: str) -> None:
        if self.skip(","):
            if self.peek() == closing:
                raise self.fault("illegal trailing comma")
        elif self.peek() != closing:
            raise self.fault("expecting ',' delimiter")

    def read_value(self) -> Any:
        """Return the next value; the text of an entry is bounded."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._index)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos + MAX_LITERAL_CHARACTERS > len(self._text)
                if not (is_cut and self._read_more()):
                    raise self.fault(error.msg.lower(), error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self.fault(describe_json_error(error)) from None
            else:
                margin = MAX_LITERAL_CHARACTERS if isinstance(value, int | float) else 0  # "1." is no end of "1.5"
                if end + margin < len(self._text) or not self._read_more():
                    self._check_size(end - self._index)
                    self._index = end
                    return value

    def _check_size(self, n_characters: int) -> None:
        if n_characters > JSON_FACTOR * max_line_bytes():
            fix = "split it into several, or write one question a line as .jsonl"
            raise too_large_error(self.path, "an entry", fix, factor=JSON_FACTOR)

    def _read_more(self) -> bool:
        """Read until there is twice as much of the value, so that parsing it repeatedly takes linear time."""
        done, rest = self._text[: self._index], self._text[self._index :]
        self._check_size(len(rest))
        parts, n_more = [rest], 0
        for block in self._blocks:
            parts.append(block)
            n_more += len(block)
            if n_more >= len(rest):
                break
        if n_more == 0:
            return False
        self._n_characters_before += len(done)
        self._n_lines_before += done.count("\n")
        self._text, self._index = "".join(parts), 0
        return True

    def fault(self, problem: str, position: int | None = None) -> DataError:
        """Return the error about the text at a position, or the current one."""
        position = self._index if position is None else position
        character = self._n_characters_before + position + 1
        line = self._n_lines_before + self._text.count("\n", 0, position) + 1
        fix = "one object a line is JSONL: name the file .jsonl"
        return DataError(self.path, f"not JSON: {problem} (character {character:,}); {fix}", line)
