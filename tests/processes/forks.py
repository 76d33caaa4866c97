"""`regard` commands as processes of their own that begin at once: forked from one that has imported everything.

Run as a program it reads orders, one JSON object a line; each forked child is the command ``regard`` itself, and may
be ordered to kill itself (SIGKILL) right before its n-th change to the files of a folder, to write no file beyond a
size, as on a full disk, to be killed in the middle of a write that passes a size, or to trace what it compiles without
compiling it. It has no matplotlib. Tests use `Forks`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from commands import restore_flushing, status_of, warm_up

CHANGES = ("os.rename", "os.remove", "os.truncate")
"""Python's names of the events after which a folder is another; beside them, a file opened to write in it."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (minus the number of the signal that killed it) and what it wrote."""

    status: int
    out: str
    err: str


class Forks:
    """Starts commands, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._out, self._err = folder / "stdout", folder / "stderr"
        command = [sys.executable, __file__]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._running: int | None = None
        self._is_ready = False

    @property
    def process_id(self) -> int:
        """The process that commands are forked from, once it waits for orders."""
        self._wait_until_ready()
        return self._server.pid

    def start(self, *arguments: object, **order: object) -> int:
        """Begin a command; gives its process id.

        Orders: `kill_at` which change `within` a folder, `limit`, `kill_beyond` a file size, `flush`, which tests
        leave out, `trace`.
        """
        self._wait_until_ready()
        if self._running is not None:  # left behind by a test that failed
            os.kill(self._running, signal.SIGKILL)
            self.wait()
        order |= {"arguments": [str(argument) for argument in arguments], "files": [str(self._out), str(self._err)]}
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(order, default=str) + "\n")
        self._server.stdin.flush()
        self._running = int(self._answer())
        return self._running

    def wait(self) -> Ended:
        """The end of the command last begun."""
        status = int(self._answer())
        self._running = None
        return Ended(status, self._out.read_text(encoding="utf-8"), self.report())

    def run(self, *arguments: object, **order: object) -> Ended:
        """A command from its beginning to its end."""
        self.start(*arguments, **order)
        return self.wait()

    def report(self) -> str:
        """What the command has written to stderr so far."""
        return self._err.read_text(encoding="utf-8")

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def _wait_until_ready(self) -> None:
        if not self._is_ready:
            self._answer()
            self._is_ready = True

    def _answer(self) -> str:
        assert self._server.stdout is not None
        answer = self._server.stdout.readline()
        if not answer:
            raise ChildProcessError(f"the process that forks ended with status {self._server.wait()}")
        return answer


def _serve() -> None:
    sys.modules["matplotlib.figure"] = None  # type: ignore[assignment]
    warm_up()
    _answer("ready")
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if process == 0:
            _obey(order)
        _answer(process)
        _answer(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _answer(answer: object) -> None:
    """Write a line by one system call, also where Python is told to buffer nothing: faults are counted in calls."""
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def _obey(order: dict[str, Any]) -> None:
    """Become the command."""
    import torch

    from regard.cli import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in zip((1, 2), order["files"], strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    if "kill_at" in order:
        _die_at(order["kill_at"], order["within"])
    if "flush" in order:
        restore_flushing()
    if "trace" in order:
        torch.compile = partial(torch.compile, backend="eager")
    if "limit" in order:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
    if "kill_beyond" in order:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["kill_beyond"], order["kill_beyond"]))
    status = status_of(lambda: main(order["arguments"]))
    os._exit(status)  # at once: taking all of torch down again would take longer than the command


def _die_at(number: int, within: str) -> None:
    """Kill this process right before its n-th change to a file under a folder."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGES and not (event == "open" and _writes(arguments)):
            return
        with suppress(TypeError):  # an open by number: nothing of ours
            if os.fspath(arguments[0]).startswith(within):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _writes(arguments: tuple[Any, ...]) -> bool:
    return any(letter in (arguments[1] or "") for letter in "wax+")


if __name__ == "__main__":
    _serve()
    os._exit(0)  # without taking all of torch down
