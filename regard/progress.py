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

LOG_INTERVAL_SECONDS = 10.0
"""Between two plain lines, where there is no terminal to draw a bar in."""


def print_message(message: str) -> None:
    """One line for the person watching."""
    console.print(message, soft_wrap=True, markup=False)


_warned: set[str] = set()


def warn(message: str) -> None:
    """One line about something left out or unusual; the same line is said once, however often a file is read."""
    if message in _warned:
        return
    _warned.add(message)
    console.print(f"warning: {message}", style="yellow", soft_wrap=True, markup=False)


def live_display(*columns: ProgressColumn) -> Progress:
    """A live display on stderr, where that is a terminal; what is printed meanwhile goes where it was going."""
    return Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )


class ProgressBar:
    """Counts finished pieces of work and shows the count, or what share of all it is."""

    def __init__(self, description: str, total: int | None, *, as_percentage: bool = False) -> None:
        self.description, self.total, self.n_done, self.as_percentage = description, total, 0, as_percentage
        self._last_logged = time.monotonic()
        self._display: Progress | None = None
        if console.is_terminal:
            count = TaskProgressColumn() if as_percentage else MofNCompleteColumn()
            columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
            self._display = live_display(*columns, TimeRemainingColumn())
            self._task = self._display.add_task(description, total=total)

    def advance(self, n: int = 1) -> None:
        self.set_done(self.n_done + n)

    def set_done(self, n_done: int) -> None:
        self.n_done = n_done
        if self._display is not None:
            self._display.update(self._task, completed=self.n_done)
        elif time.monotonic() - self._last_logged > LOG_INTERVAL_SECONDS:
            self._last_logged = time.monotonic()
            print_message(f"{self.description}: {self._format_count()}")

    def _format_count(self) -> str:
        if self.as_percentage and self.total:
            return f"{self.n_done / self.total:.0%}"
        return f"{self.n_done:,}" + (f" of {self.total:,}" if self.total else "")


@contextmanager
def progress_bar(description: str, total: int | None = None, *, as_percentage: bool = False) -> Iterator[ProgressBar]:
    """A bar that is gone when the work is done."""
    shown = ProgressBar(description, total, as_percentage=as_percentage)
    if shown._display is None:
        yield shown
    else:
        with shown._display:
            yield shown


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The items themselves, counted as they pass."""
    with progress_bar(description, total) as shown:
        for item in items:
            yield item
            shown.advance()


Tell = Callable[[], int]

_read_listener: ContextVar[Callable[[Path, Tell], None] | None] = ContextVar("listening", default=None)


def report_bytes_read(path: str | Path, tell: Tell) -> None:
    """Said by who reads a file; `tell` gives how many of its bytes, as they lie on the disk, are read."""
    if (listener := _read_listener.get()) is not None:
        listener(Path(path), tell)


@contextmanager
def track_file_reading(description: str, file_sizes: Mapping[Path, int]) -> Iterator[None]:
    """Shows what share of files of these sizes is read meanwhile."""
    places = dict.fromkeys(file_sizes, 0)
    with progress_bar(description, sum(file_sizes.values()), as_percentage=True) as shown:

        def listen(path: Path, tell: Tell) -> None:
            if path in places:
                places[path] = tell()
                shown.set_done(sum(places.values()))

        before = _read_listener.set(listen)
        try:
            yield
        finally:
            _read_listener.reset(before)
