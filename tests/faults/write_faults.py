"""Write faults: every call that writes fails in turn, also halfway, and the training is then resumed.

In this process, calls of Python and of the library of weights fail (no room, an input/output error of the disk); where
strace is installed, system calls of a process of its own fail; and a limit on the size of files, which cuts a write
short as a full disk does, holds for another. Each must end with one line, and what was written before must be intact:
resumed, the run directory must be, bit for bit, that of a training without faults. The long form is

    python tests/faults/campaign.py write_faults --cases 300
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fault_counts import FaultCounts
from forks import Ended, Forks
from run_faults import HAS_STRACE, TinyTraining, faulty_system_call, started_forks, wait_for_end
from tiny_runs import CPU

from regard.errors import RegardError
from regard.models import weights
from regard.training.loop import Trainer
from regard.training.prepare import prepare_run

ERRORS = (errno.ENOSPC, errno.EIO)

SYSTEM_CALLS = {"write": 60, "fsync": 40, "rename": 20, "mkdir": 20, "openat": 200, "ftruncate": 4}
"""System calls that fail, and about how many of them a training of four steps makes; some only read."""


class FaultyCalls:
    """Counts the calls that write, and lets the n-th fail; a write is done by half before."""

    def __init__(self, number: int = 0, error: int = errno.EIO) -> None:
        self.number, self.error, self.n_calls = number, error, 0

    def is_due(self) -> bool:
        self.n_calls += 1
        return self.n_calls == self.number

    def fail(self) -> None:
        raise OSError(self.error, os.strerror(self.error))

    def wrap(self, call: Callable[..., Any], shorten: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return the call with the fault; `shorten` does half of it."""

        def faulty(*arguments: Any, **options: Any) -> Any:
            if self.is_due():
                if shorten is not None:
                    shorten(*arguments, **options)
                self.fail()
            return call(*arguments, **options)

        return faulty

    def open(self, path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """Open a file; one to write is unbuffered, and has the fault in its writes."""
        if mode not in ("ab", "wb"):
            return OPEN(path, mode, *arguments, **options)
        file = OPEN(path, mode, buffering=0)
        return FaultyFile(self, file)


class FaultyFile:
    """A file whose writes may fail."""

    def __init__(self, calls: FaultyCalls, file: Any) -> None:
        self.file = file
        self.write = calls.wrap(file.write, lambda content: file.write(bytes(content)[: len(content) // 2]))

    def __enter__(self) -> FaultyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


OPEN = Path.open


@contextmanager
def faults_in(calls: FaultyCalls) -> Iterator[None]:
    """Let all calls that write, in the block, go through the fault layer."""
    write_text, save_file = Path.write_text, weights.save_file

    def write_half(path: Path, text: str, **options: Any) -> None:
        write_text(path, text[: len(text) // 2], **options)

    def save_half(tensors: Any, path: Path, metadata: Any) -> None:
        save_file(tensors, path, metadata)
        os.truncate(path, path.stat().st_size // 2)

    with (
        patch.object(Path, "open", lambda path, *arguments, **options: calls.open(path, *arguments, **options)),
        patch.object(Path, "write_text", calls.wrap(write_text, write_half)),
        patch.object(Path, "replace", calls.wrap(Path.replace)),
        patch.object(Path, "mkdir", calls.wrap(Path.mkdir)),
        patch.object(weights, "save_file", calls.wrap(save_file, save_half)),
        patch.object(os, "fsync", calls.wrap(os.fsync)),
        patch.object(os, "truncate", calls.wrap(os.truncate)),
        patch.object(os, "pwrite", calls.wrap(os.pwrite)),
    ):
        yield


def train_here(training: TinyTraining, out: Path) -> None:
    list(Trainer(prepare_run(training.tables, out, CPU, where="test", resume=True)).train())


def check_call(training: TinyTraining, calls: FaultyCalls, counts: FaultCounts) -> None:
    """Train with the fault in this process, then resume without."""
    out, where = training.folder / "faulty", f"call {calls.number}, {errno.errorcode[calls.error]}"
    counts.count_case("call")
    try:
        with faults_in(calls):
            train_here(training, out)
    except RegardError as error:
        if "\n" in str(error) or os.strerror(calls.error) not in str(error):
            counts.add_fault("silent", f"{where}: {error}")
    except Exception as error:
        counts.add_fault("tracebacks", f"{where}: {error!r}")
    try:
        train_here(training, out)
    except Exception as error:
        counts.add_fault("lost", f"{where}: {error!r}")
    if difference := training.describe_difference(out):
        counts.add_fault("lost", f"{where}: {difference}")
    training.remove("faulty")


def check_command(training: TinyTraining, forks: Forks, generator: random.Random, counts: FaultCounts) -> None:
    """Train in a process of its own with the fault, then resume without."""
    out = training.folder / "faulty"
    command = training.command(out)
    counts.count_case()
    if HAS_STRACE and generator.random() < 0.7:
        call = generator.choice(list(SYSTEM_CALLS))
        number, error = generator.randint(3, 3 + SYSTEM_CALLS[call]), errno.errorcode[generator.choice(ERRORS)]
        where = f"{call} {number}, {error}"
        with faulty_system_call(forks, call, f"error={error}", number):
            ended, hung = wait_for_end(forks, forks.start(*command, flush=True))
        counts.add_detail(call)
    else:
        limit = int(10 ** generator.uniform(2, 5.2))
        where = f"files of at most {limit} bytes"
        ended, hung = wait_for_end(forks, forks.start(*command, limit=limit))
        counts.add_detail("limit")
    judge_command(ended, hung, where, counts)
    again, hung = wait_for_end(forks, forks.start(*command))
    if again.status or hung:
        counts.add_fault("lost", f"{where}: {again.err}")
    elif difference := training.describe_difference(out):
        counts.add_fault("lost", f"{where}: {difference}")
    training.remove("faulty")


def judge_command(ended: Ended, hung: bool, where: str, counts: FaultCounts) -> None:
    """Count what a command with a fault must not do: hang, or end with anything but one line of error."""
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if hung:
        counts.add_fault("hangs", where)
    elif "Traceback" in ended.err or ended.status not in (0, 2):
        counts.add_fault("tracebacks", f"{where}: status {ended.status}: {ended.err}")
    elif len(errors) != (ended.status == 2):
        counts.add_fault("silent", f"{where}: {ended.err}")


def run(n: int, seed: int = 0, forks: Forks | None = None, *, in_process: bool = False) -> FaultCounts:
    """Let calls fail in n cases, of which half at most, or all, are in this process; return the counts."""
    counts, generator = FaultCounts("write faults"), random.Random(seed)
    with TemporaryDirectory() as name:
        training = TinyTraining(Path(name))
        observed = FaultyCalls()
        with faults_in(observed):
            train_here(training, training.folder / "observed")
        cases = [(number + 1, error) for number in range(observed.n_calls) for error in ERRORS]
        generator.shuffle(cases)
        for number, error in islice(cases, n if in_process else n // 2):
            check_call(training, FaultyCalls(number, error), counts)
        if not in_process:
            with started_forks(forks) as opened:
                while counts.cases < n:
                    check_command(training, opened, generator, counts)
    return counts
