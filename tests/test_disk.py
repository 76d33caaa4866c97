"""Errors of reading and writing files become one-line errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard import disk
from regard.disk import convert_write_errors, read_bytes, write_atomically
from regard.errors import CheckpointError, InputError, TrainingError


def test_write_error_names_path_cause_and_fix() -> None:
    message = r"^out: cannot be written \(No space left on device\); make room, or choose another path$"
    with pytest.raises(InputError, match=message), convert_write_errors(Path("out")):
        raise OSError(28, "No space left on device")


def test_write_error_has_the_given_type_and_fix() -> None:
    with (
        pytest.raises(TrainingError, match=r"^out: cannot be written \(broken\); try again$"),
        convert_write_errors(Path("out"), fix="try again", error_type=TrainingError),
    ):
        raise OSError("broken")


def test_other_errors_pass_through() -> None:
    with pytest.raises(ValueError, match="other"), convert_write_errors(Path("out")):
        raise ValueError("other")


def test_file_and_then_its_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    write_atomically(tmp_path / "file", lambda path: path.write_text("text"))
    assert flushed == [path.stat().st_ino for path in (tmp_path / "file", tmp_path)]


@pytest.mark.parametrize("begun", [True, False])
def test_error_of_the_writer_is_passed_on_and_leaves_the_old_file(tmp_path: Path, begun: bool) -> None:
    def write(path: Path) -> None:
        if begun:
            path.write_text("half of ")
        raise KeyboardInterrupt

    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", write)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_file_of_at_most_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_DESCRIPTION_BYTES", 1000)
    path = tmp_path / "config.json"
    path.write_bytes(b"x" * 1000)
    assert read_bytes(path) == b"x" * 1000
    path.write_bytes(b"x" * 1001)
    with pytest.raises(CheckpointError, match=r"config\.json: 1,001 bytes, expected at most 1,000; restore it"):
        read_bytes(path)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match=r"config\.json: no such file$"):
        read_bytes(path)
    os.mkfifo(path)
    for each in (path, tmp_path, Path("/dev/zero")):
        with pytest.raises(CheckpointError, match=f"^{each}: not a file; restore it from a copy$"):
            read_bytes(each)
