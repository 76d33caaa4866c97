"""SIGKILL at random moments of a training, which is then resumed, and perhaps killed again, until it ends.

The moments are: right before a change of a file that Python makes, at a random time, and, where strace is installed, in
a random system call. In the end the run directory must be, bit for bit, that of a training that was never killed, and
hold nothing else. The long form is

    python tests/faults/campaign.py kills --cases 200
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fault_counts import FaultCounts
from forks import Ended, Forks
from run_faults import HAS_STRACE, TinyTraining, faulty_system_call, started_forks, wait_for_end

SYSTEM_CALLS = {
    "openat": 400,
    "write": 150,
    "close": 400,
    "fsync": 60,
    "rename": 30,
    "mkdir": 30,
    "rmdir": 30,
    "unlink": 10,
    "unlinkat": 30,
    "chmod": 10,
    "ftruncate": 4,
    "flock": 2,
}
"""System calls in which a command is killed, and about how many of them a training of four steps makes."""

MAX_CHANGES = 45
"""About how many changes of files such a training makes."""

MAX_SECONDS = 1.5
"""About the time that such a training takes."""

Attempt = Callable[[Forks, list[str], Path, random.Random], tuple[Ended, bool]]
"""Runs a command that may be killed; returns how it ended, and True if it hung."""


def kill_at_a_change(forks: Forks, command: list[str], out: Path, generator: random.Random) -> tuple[Ended, bool]:
    return wait_for_end(forks, forks.start(*command, kill_at=generator.randint(1, MAX_CHANGES), within=out))


def kill_at_a_time(forks: Forks, command: list[str], out: Path, generator: random.Random) -> tuple[Ended, bool]:
    process = forks.start(*command)
    time.sleep(generator.uniform(0, MAX_SECONDS))
    with suppress(ProcessLookupError):  # it ended before
        os.kill(process, signal.SIGKILL)
    return wait_for_end(forks, process)


def kill_in_a_system_call(forks: Forks, command: list[str], out: Path, generator: random.Random) -> tuple[Ended, bool]:
    call = generator.choice(list(SYSTEM_CALLS))
    # The process that forks writes two lines itself, and must survive.
    with faulty_system_call(forks, call, "signal=KILL", generator.randint(3, 3 + SYSTEM_CALLS[call])):
        return wait_for_end(forks, forks.start(*command, flush=True))


ATTEMPTS: tuple[Attempt, ...] = (
    kill_at_a_change,
    kill_at_a_time,
    *([kill_in_a_system_call] if HAS_STRACE else []),
)
"""Ways to kill a command."""


def run_killed_training(
    training: TinyTraining, forks: Forks, n_kills: int, generator: random.Random, counts: FaultCounts
) -> None:
    """Train once, killed at most so many times."""
    out, before = training.folder / "killed", counts.cases
    while True:
        attempt = generator.choice(ATTEMPTS)
        if counts.cases == before + n_kills:
            ended, hung = wait_for_end(forks, forks.start(*training.command(out)))
        else:
            ended, hung = attempt(forks, training.command(out), out, generator)
        if hung:
            counts.add_fault("hangs", attempt.__name__)
        if ended.status != -signal.SIGKILL:
            break
        counts.count_case(attempt.__name__)
    if ended.status != 0:
        counts.add_fault("tracebacks" if "Traceback" in ended.err else "lost", f"status {ended.status}: {ended.err}")
    elif difference := training.describe_difference(out):
        counts.add_fault("silent", f"after {counts.cases - before} kills: {difference}")


def run(n_kills: int, seed: int = 0, forks: Forks | None = None) -> FaultCounts:
    """Kill trainings until there were so many kills, each training at most five times; return the counts."""
    counts, generator = FaultCounts("kills"), random.Random(seed)
    with TemporaryDirectory() as name, started_forks(forks) as opened:
        training = TinyTraining(Path(name))
        while counts.cases < n_kills:
            run_killed_training(training, opened, min(5, n_kills - counts.cases), generator, counts)
            counts.add_detail("trainings")
            training.remove("killed")
    return counts
