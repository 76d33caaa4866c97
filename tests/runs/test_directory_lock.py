"""The lock on a directory: one holder at a time, named to the others, and freed however its process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.runs.directory_lock import LOCK_FILE, DirectoryLock, is_empty_directory

HOLD = """
import os, sys
from pathlib import Path
from regard.runs.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    sys.exit()  # a child that ends must not release the lock of its parent
os.wait()
print(flush=True)
input()
"""
"""A process that holds the lock of a directory until it is killed, or told to end."""


@contextmanager
def held_by_a_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path), "two words"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        DirectoryLock(path).acquire()
    return str(caught.value)


def test_holder_is_named_and_a_killed_one_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with held_by_a_process(path) as process:
        expected = (
            rf"{path}: in use by process {process.pid} on {re.escape(platform.node())} "
            rf"since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d \(-c {path} 'two words'\); "
            r"wait until that ends, stop it, or choose another --out"
        )
        assert re.fullmatch(expected, refusal(path))
        os.kill(process.pid, signal.SIGKILL)
    assert (path / LOCK_FILE).exists()
    with DirectoryLock(path):
        assert f"process {os.getpid()} " in refusal(path)
    assert list(path.iterdir()) == []


def test_process_that_ends_removes_its_file_and_its_empty_directory(tmp_path: Path) -> None:
    with held_by_a_process(tmp_path / "runs" / "new") as process:
        process.communicate("\n")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_lock_is_released_at_the_end_of_the_outermost_block(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    with lock:
        with lock:
            assert is_empty_directory(tmp_path)
        assert lock.is_held
        refusal(tmp_path)
    assert not lock.is_held
    lock.release()


def test_lock_that_nobody_refers_to_is_free(tmp_path: Path) -> None:
    DirectoryLock(tmp_path).acquire()
    with DirectoryLock(tmp_path):
        pass


def test_directory_that_holds_something_stays(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "run"):
        (tmp_path / "run" / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "file"]


def test_holder_that_has_not_written_itself_down(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with lock:
        for content in ("", '{"pid": 3', "[]"):
            (tmp_path / LOCK_FILE).write_text(content)
            assert refusal(tmp_path).startswith(f"{tmp_path}: in use by another process; ")


def test_file_that_is_removed_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes its file after another process has opened it: only a file with a name excludes others."""
    flock, removals = fcntl.flock, iter([tmp_path / LOCK_FILE])

    def remove_first(handle: int, operation: int) -> None:
        for path in removals:
            path.unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with DirectoryLock(tmp_path):
        assert "in use by" in refusal(tmp_path)


def test_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with DirectoryLock(tmp_path):
        pass
    warning = f"warning: {tmp_path}: cannot be locked here ([Errno {errno.ENOLCK}] No locks available); make sure that"
    assert capsys.readouterr().err.startswith(warning)


def test_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == f"{tmp_path}/file: not a directory; choose another --out"
    (tmp_path / LOCK_FILE).symlink_to("elsewhere/nothing")
    assert refusal(tmp_path).startswith(f"{tmp_path}: cannot be written (Too many levels of symbolic links); ")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    assert refusal(tmp_path / "full").startswith(f"{tmp_path}/full: cannot be written (No space left on device); ")
    assert not (tmp_path / "full").exists()


def test_directory_that_takes_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc does: it is there, and yet no file in it can be created."""

    def refuse(self: DirectoryLock, lock_path: Path, created: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(lock_path))

    monkeypatch.setattr(DirectoryLock, "_open_and_lock", refuse)
    with pytest.raises(InputError, match=r"cannot be written \(No such file or directory\)"):
        DirectoryLock(tmp_path).acquire()
