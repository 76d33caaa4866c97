"""A call in a forked process of its own, with limits on time and memory, and the judgement of how it ended.

A hostile input may abort the process, loop in native code or fill the memory, none of which can be caught from inside.
Used by options.py and model_directories.py.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

REFUSED = 2
"""The exit status of a command that refuses its input."""

MEMORY_BYTES = 3 << 29
"""Memory that a call may use beyond that of the process it is forked from (RLIMIT_AS)."""

CPU_SECONDS = 40
"""Time of the processor that a call may use (RLIMIT_CPU), however busy the machine is."""

WAIT_SECONDS = 300.0
"""Time after which a call that uses no processor hangs."""

OUT_OF_MEMORY = ("MemoryError", "can't allocate memory", "memory allocation of", "bad_alloc", "Cannot allocate memory")
"""What Python, torch, Rust and C++ say of a failed allocation."""


class Ended(NamedTuple):
    """How a call ended: its exit status, or minus the number of the signal that killed it, and what it wrote."""

    status: int
    out: str
    err: str
    memory_bytes: int
    is_timed_out: bool

    @property
    def outcome(self) -> str:
        """The name of what this counts as: "succeeded", "refused", or a kind of fault."""
        if self.is_timed_out:
            return "hangs"
        if self.status == 0:
            return "succeeded"
        if is_refusal(self):
            return "refused"
        return "memory_excess" if any(words in self.err for words in OUT_OF_MEMORY) else "tracebacks"


def is_refusal(ended: Ended) -> bool:
    """Return True for exit status 2 with one line ``error: ...`` after warnings and progress, if any."""
    lines = [line for line in ended.err.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    is_clean = not any("Traceback" in line or "panicked" in line for line in lines)
    return ended.status == REFUSED and len(errors) == 1 and lines[-1] == errors[0] and is_clean


def run_isolated(call: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> Ended:
    """Run a call in a forked process, in a folder of its own, with nothing on its standard input; wait for its end."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, working_directory = (Path(folder) / name for name in ("out", "err", "a/b"))
        working_directory.mkdir(parents=True)
        before = _resident_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which the child never uses
            process = os.fork()
        if process == 0:
            _become(call, out, err, working_directory)
        status, usage, is_timed_out = _wait(process, seconds)
        texts = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in (out, err)]
    return Ended(status, *texts, max(0, usage.ru_maxrss * 1024 - before), is_timed_out)


def _become(call: Callable[[], object], out: Path, err: Path, working_directory: Path) -> None:
    status = 1
    try:
        torch.set_num_threads(1)  # a fork has none of the threads that its parent may have computed with
        os.chdir(working_directory)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - pytest has replaced all three
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        memory, seconds = _virtual_bytes() + MEMORY_BYTES, CPU_SECONDS + math.ceil(time.process_time())
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        call()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(process: int, seconds: float) -> tuple[int, resource.struct_rusage, bool]:
    deadline, pause = time.monotonic() + seconds, 0.001
    while True:
        found, status, usage = os.wait4(process, os.WNOHANG)
        if found:
            ended = os.waitstatus_to_exitcode(status)
            return ended, usage, ended in (-signal.SIGXCPU, -signal.SIGKILL)
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            _, status, usage = os.wait4(process, 0)
            return os.waitstatus_to_exitcode(status), usage, True
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
