"""Progress reports on stderr: a live bar in a terminal, a plain line every few seconds in a log.

Any layer may call `track` or `progress_bar`; results never go through here, they belong to stdout. File readers call
`report_bytes_read`, and `track_file_reading` displays the fraction read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
"""Time between two plain lines, without a terminal to draw a bar in."""


def print_message(message: str, style: str | None = None) -> None:
    """Print one line on stderr; on a full device it is lost, for the work must not end because of it."""
    with suppress(OSError):
        console.print(message, style=style, soft_wrap=True, markup=False)


_warned: set[str] = set()


def warn(message: str) -> None:
    """Print a warning on stderr; each message is printed once, however often a file is read."""
    if message in _warned:
        return
    _warned.add(message)
    print_message(f"warning: {message}", style="yellow")


def live_display(*columns: ProgressColumn) -> Progress:
    """Return a live display on stderr, active in a terminal only; stdout and stderr are not redirected."""
    return Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )


_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)


@contextmanager
def quiet_progress() -> Iterator[None]:
    """Show no progress of the block: for the steps of one item of a loop that shows its own."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


class ProgressBar:
    """A counter of finished items that displays the count, or the percentage of the total."""

    def __init__(self, description: str, total: int | None, *, as_percentage: bool = False) -> None:
        self.description, self.total, self.n_done, self.as_percentage = description, total, 0, as_percentage
        self._is_quiet = _is_quiet.get()
        self._last_logged = time.monotonic()
        self._display: Progress | None = None
        if console.is_terminal and not self._is_quiet:
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
        elif not self._is_quiet and time.monotonic() - self._last_logged > LOG_INTERVAL_SECONDS:
            self._last_logged = time.monotonic()
            print_message(f"{self.description}: {self._format_count()}")

    def _format_count(self) -> str:
        if self.as_percentage and self.total:
            return f"{self.n_done / self.total:.0%}"
        return f"{self.n_done:,}" + (f" of {self.total:,}" if self.total else "")


@contextmanager
def progress_bar(description: str, total: int | None = None, *, as_percentage: bool = False) -> Iterator[ProgressBar]:
    """Show a progress bar for the duration of the block."""
    bar = ProgressBar(description, total, as_percentage=as_percentage)
    if bar._display is None:
        yield bar
    else:
        with bar._display:
            yield bar


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items and advance a progress bar after each."""
    with progress_bar(description, total) as bar:
        for item in items:
            yield item
            bar.advance()


Tell = Callable[[], int]

_read_listener: ContextVar[Callable[[Path, Tell], None] | None] = ContextVar("read_listener", default=None)


def report_bytes_read(path: str | Path, tell: Tell) -> None:
    """Report reading of a file; `tell` returns how many of its bytes on disk have been read."""
    if (listener := _read_listener.get()) is not None:
        listener(Path(path), tell)


@contextmanager
def track_file_reading(description: str, file_sizes: Mapping[Path, int]) -> Iterator[None]:
    """Show the fraction of files of these sizes that is read during the block."""
    bytes_read = dict.fromkeys(file_sizes, 0)
    with progress_bar(description, sum(file_sizes.values()), as_percentage=True) as bar:

        def update(path: Path, tell: Tell) -> None:
            if path in bytes_read:
                bytes_read[path] = tell()
                bar.set_done(sum(bytes_read.values()))

        token = _read_listener.set(update)
        try:
            yield
        finally:
            _read_listener.reset(token)
