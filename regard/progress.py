"""Progress of long work, on stderr: a live bar in a terminal, a plain line now and then in a log.

Any layer may call `track` or `bar`; results never go through here, they belong to stdout. Who reads
files says by `has_read` how far, and `watch_files` shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

console = Console(stderr=True, highlight=False)

QUIET_SECONDS = 10.0
"""Between two plain lines, where there is no terminal to draw a bar in."""


def say(message: str) -> None:
    """One line for the person watching."""
    console.print(message, soft_wrap=True, markup=False)


_warned: set[str] = set()


def warn(message: str) -> None:
    """One line about something left out or unusual; the same line is said once, however often a file is read."""
    if message in _warned:
        return
    _warned.add(message)
    console.print(f"warning: {message}", style="yellow", soft_wrap=True, markup=False)


def live(*columns: ProgressColumn) -> Progress:
    """A live display on stderr, where that is a terminal; what is printed meanwhile goes where it was going."""
    return Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )


class Bar:
    """Counts finished pieces of work and shows the count, or what share of all it is."""

    def __init__(self, what: str, total: int | None, *, share: bool = False) -> None:
        self.what, self.total, self.done, self.share = what, total, 0, share
        self._said = time.monotonic()
        self._live: Progress | None = None
        if console.is_terminal:
            count = TaskProgressColumn() if share else MofNCompleteColumn()
            columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
            self._live = live(*columns, TimeRemainingColumn())
            self._task = self._live.add_task(what, total=total)

    def advance(self, pieces: int = 1) -> None:
        self.reach(self.done + pieces)

    def reach(self, done: int) -> None:
        self.done = done
        if self._live is not None:
            self._live.update(self._task, completed=self.done)
        elif time.monotonic() - self._said > QUIET_SECONDS:
            self._said = time.monotonic()
            say(f"{self.what}: {self._count()}")

    def _count(self) -> str:
        if self.share and self.total:
            return f"{self.done / self.total:.0%}"
        return f"{self.done:,}" + (f" of {self.total:,}" if self.total else "")


@contextmanager
def bar(what: str, total: int | None = None, *, share: bool = False) -> Iterator[Bar]:
    """A bar that is gone when the work is done."""
    shown = Bar(what, total, share=share)
    if shown._live is None:
        yield shown
    else:
        with shown._live:
            yield shown


def track(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """The items themselves, counted as they pass."""
    with bar(what, total) as shown:
        for item in items:
            yield item
            shown.advance()


Tell = Callable[[], int]

_listening: ContextVar[Callable[[Path, Tell], None] | None] = ContextVar("listening", default=None)


def has_read(path: str | Path, tell: Tell) -> None:
    """Said by who reads a file; `tell` gives how many of its bytes, as they lie on the disk, are read."""
    if (listener := _listening.get()) is not None:
        listener(Path(path), tell)


@contextmanager
def watch_files(what: str, sizes: Mapping[Path, int]) -> Iterator[None]:
    """Shows what share of files of these sizes is read meanwhile."""
    places = dict.fromkeys(sizes, 0)
    with bar(what, sum(sizes.values()), share=True) as shown:

        def listen(path: Path, tell: Tell) -> None:
            if path in places:
                places[path] = tell()
                shown.reach(sum(places.values()))

        before = _listening.set(listen)
        try:
            yield
        finally:
            _listening.reset(before)
