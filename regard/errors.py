"""The errors a user can cause and correct.

    RegardError
    ├── ConfigError      a recipe, a --set or an option that does not fit
    ├── DataError        a data file that cannot be read as requested (path, line)
    ├── InputError       a text or argument given to a command or a function
    │   └── NonFiniteError   a model whose outputs are NaN or infinite
    ├── CheckpointError  a run directory that is missing, foreign or damaged
    ├── TrainingError    training that cannot continue (memory, disk, non-finite numbers)
    └── MissingExtra     a library that is not installed (names the command that installs it)

A message is one line, lower case: where, what was found, what is accepted, the likely fix.
The command line prints it after ``error:`` and exits with status 2.
A programmer's mistake is an ``assert``, never one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class RegardError(Exception):
    """An error that the user can correct."""


class ConfigError(RegardError):
    pass


class DataError(RegardError):
    """A fault in a data file; names the path and, if known, the line (counted from 1)."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        where = str(path) if line is None else f"{path}:{line}"
        super().__init__(escape_unprintable(f"{where}: {problem}"))


class InputError(RegardError):
    pass


class NonFiniteError(InputError):
    """A model whose outputs are NaN or infinite, and therefore not a result."""

    def __init__(self) -> None:
        super().__init__("the model's scores are not numbers; its weights are damaged, or its training went wrong")


class CheckpointError(RegardError):
    """A fault in a directory, in one line whatever its files hold."""

    def __init__(self, message: str) -> None:
        super().__init__(escape_unprintable(message))


class TrainingError(RegardError):
    pass


class MissingExtra(RegardError):
    """An optional library that is not installed; names the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra '{extra}'; run: pip install 'regard[{extra}]'")


def escape_unprintable(message: str) -> str:
    """Return a message in one line: text from a file may contain line ends, surrogates or control sequences."""
    if message.isprintable():
        return message
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in message)


def has_surrogate(text: str) -> bool:
    """Return True for a text with half a character, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest known name after `prefix`, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{prefix}{close[0]}'?" if close else f"known: {', '.join(names)}"
