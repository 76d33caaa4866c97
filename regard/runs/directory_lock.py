"""An exclusive lock on a directory that a command writes into, so that two commands never mix their files.

The operating system holds the lock, on an open file in the directory, and frees it however its process ends. The file
says who holds it. Training, import, export, `regard compare` and `regard identify` take it; reading a model needs none.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.disk import check_path_is_utf8, convert_write_errors
from regard.errors import InputError
from regard.progress import warn

LOCK_FILE = ".lock"
MAX_COMMAND_LENGTH = 200
"""Characters of the holder's command in a message."""

MAX_ATTEMPTS = 100
"""Attempts to create a file in a directory that exists; some directories, as /proc, take none."""

UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of file systems without locks."""


class DirectoryLock:
    """The lock on a directory, taken at most once at a time, also within a process.

    `with lock:` takes it if need be, and releases it at the end of the outermost block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._depth = 0
        self._release: weakref.finalize[..., Any] | None = None

    @property
    def is_held(self) -> bool:
        return self._release is not None and self._release.alive

    def acquire(self) -> None:
        """Take the lock and create the directory if there is none; raise an error that names the holder, if any."""
        check_path_is_utf8(self.path)
        with convert_write_errors(self.path, fix="make room, or choose another --out"):
            n_missing = 0
            while not self.is_held:
                created = _create_directory(self.path)
                try:
                    self._open_and_lock(self.path / LOCK_FILE, created)
                except FileNotFoundError:  # a process that failed removed its directory again, or no file can be made
                    n_missing += 1
                    if n_missing == MAX_ATTEMPTS:
                        raise

    def _open_and_lock(self, lock_path: Path, created: Sequence[Path]) -> None:
        """Lock the file, unless another process that ended in between has removed it."""
        handle = os.open(lock_path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            self._lock(handle)
            is_current = os.path.samestat(os.fstat(handle), lock_path.stat())
        except BaseException:
            os.close(handle)
            raise
        if not is_current:
            os.close(handle)
            return
        self._release = weakref.finalize(self, _release_lock, handle, lock_path, created, os.getpid())
        try:
            _write_holder(handle)
        except OSError:
            self.release()
            raise

    def _lock(self, handle: int) -> None:
        try:
            import fcntl  # not on Windows

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"{self.path}: in use by {_describe_holder(handle)}"
            raise InputError(f"{problem}; wait until that ends, stop it, or choose another --out") from None
        except (ImportError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in UNSUPPORTED:
                raise
            warn(f"{self.path}: cannot be locked here ({error}); make sure that nothing else writes there")

    def release(self) -> None:
        """Release the lock, if it is held; a directory that was created for it and is still empty is removed."""
        if self._release is not None:
            self._release()

    def __enter__(self) -> DirectoryLock:
        self.acquire()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.release()


def is_empty_directory(path: Path) -> bool:
    """Return True if a directory holds nothing but its lock."""
    return all(each.name == LOCK_FILE for each in path.iterdir())


def _create_directory(path: Path) -> list[Path]:
    """Create a directory and its missing parents; return those that were missing, the innermost first."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: not a directory; choose another --out")
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing


def _release_lock(handle: int, lock_path: Path, created: Sequence[Path], process: int) -> None:
    """Remove the file while it is locked, so that nobody locks a file that is about to be removed, and close it."""
    if os.getpid() == process:  # a forked child must not release the lock of its parent
        with suppress(OSError):
            lock_path.unlink()
    os.close(handle)
    if os.getpid() == process:
        with suppress(OSError):  # not empty
            for directory in created:
                directory.rmdir()


def _write_holder(handle: int) -> None:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = " ".join(shlex.join([name, *sys.argv[1:]]).split())
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    holder = {"pid": os.getpid(), "host": platform.node(), "since": started, "command": command}
    os.ftruncate(handle, 0)
    os.pwrite(handle, (json.dumps(holder) + "\n").encode(), 0)


def _describe_holder(handle: int) -> str:
    """Return the process that holds a lock, as it wrote itself down; it may not have done so yet."""
    try:
        holder = json.loads(os.pread(handle, 1 << 20, 0))
        command = str(holder["command"])
        if len(command) > MAX_COMMAND_LENGTH:
            command = f"{command[:MAX_COMMAND_LENGTH]}..."
        return f"process {holder['pid']} on {holder['host']} since {holder['since']} ({command})"
    except (ValueError, KeyError, TypeError):
        return "another process"
