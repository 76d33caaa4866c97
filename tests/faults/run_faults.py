"""What the fault campaigns on run directories share: tiny runs, and faults in system calls."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from forks import Ended, Forks
from tiny_runs import contents, recipe, trained, written

from regard.config import Tables

TIME_LIMIT_SECONDS = 120.0
"""Generous, for a busy machine: a hang lasts for ever."""

EVERYTHING: Tables = {
    "model": {"dropout": 0.2},
    "train": {
        "steps": 4,
        "validate_every": 2,
        "save_every": 3,
        "accumulate": 2,
        "average": 2,
        "patience": 5,
        "threads": 1,
    },
}
"""Several epochs, gradient accumulation, dropout, averaging and early stopping in four steps; bits of one thread."""


class TinyTraining:
    """A training of four steps, and what the run directory holds in the end if nothing disturbs it."""

    def __init__(self, folder: Path, changes: Tables = EVERYTHING) -> None:
        self.folder = folder
        self.tables = recipe(folder, changes, n_pairs=10, n_valid=2)
        self.recipe_path = written(folder, self.tables)
        trained(self.tables, folder / "whole")
        self.expected = contents(folder / "whole")

    def command(self, out: Path) -> list[str]:
        """Return the arguments of the command that begins or resumes the training."""
        return ["train", str(self.recipe_path), "--device", "cpu", "--resume", "--out", str(out)]

    def remove(self, name: str) -> None:
        """Remove a run directory."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def describe_difference(self, out: Path) -> str:
        """Return the names of what differs from an undisturbed training; "" if nothing does."""
        try:
            found = contents(out)
        except Exception as error:
            return f"cannot be read: {error!r}"
        left = [
            str(path.relative_to(out)) for pattern in (".lock", "*.partial", "*.new") for path in out.rglob(pattern)
        ]
        names = found.keys() | self.expected.keys()
        return ", ".join([*left, *(name for name in sorted(names) if found.get(name) != self.expected.get(name))])


@contextmanager
def started_forks(forks: Forks | None) -> Iterator[Forks]:
    """Yield the given process that starts commands, or one of our own."""
    if forks is not None:
        yield forks
        return
    with TemporaryDirectory() as folder:
        own = Forks(Path(folder))
        try:
            yield own
        finally:
            own.close()


def wait_for_end(forks: Forks, process: int) -> tuple[Ended, bool]:
    """Wait for the end of a command; return it, and True if it had to be killed because it did not end."""
    hung = threading.Event()

    def kill() -> None:
        hung.set()
        os.kill(process, signal.SIGKILL)

    timer = threading.Timer(TIME_LIMIT_SECONDS, kill)
    timer.start()
    try:
        return forks.wait(), hung.is_set()
    finally:
        timer.cancel()


MAX_ATTACHMENTS = 5
"""How often strace is started, at most, before it has attached."""

HAS_STRACE = shutil.which("strace") is not None


@contextmanager
def faulty_system_call(forks: Forks, call: str, fault: str, number: int) -> Iterator[None]:
    """Let the n-th system call of this kind of every command that is started in the block fail, or kill the command."""
    with attached_strace(forks.process_id, call, fault, number) as strace:
        try:
            yield
        finally:
            strace.terminate()
            strace.wait()


@contextmanager
def attached_strace(process: int, call: str, fault: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """Yield strace when it has attached to a process, which now and then needs more than one attempt."""
    traced = ["-f", "-qq", "-o", "/dev/null", "-p", str(process), "-e", f"trace={call}"]
    command = ["strace", *traced, "-e", f"inject={call}:{fault}:when={number}"]
    for _ in range(MAX_ATTACHMENTS):
        with subprocess.Popen(command) as strace:
            while strace.poll() is None:
                if is_traced(process):
                    yield strace
                    return
                time.sleep(0.005)
    raise ChildProcessError(f"strace cannot attach to process {process}")


def is_traced(process: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{process}/status").read_text()
