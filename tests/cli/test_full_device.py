"""Results that cannot be written: one line of error and exit status 2; messages that cannot be written are lost."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tiny_runs import recipe, written

from regard import cli
from regard.cli import main

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")

VERBS = {
    "usage": ["--help"],
    "version": ["--version"],
    "help of a verb": ["train", "--help"],
    "translate": ["translate", "run", "1 2"],
    "translate to JSON": ["translate", "run", "--json", "1 2"],
    "evaluate": ["evaluate", "run", "valid.src", "valid.tgt"],
    "info": ["info", "run"],
    "look": ["look", "run", "1 2"],
}


@pytest.mark.parametrize("name", VERBS)
def test_full_stdout_is_one_line(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        with pytest.raises(SystemExit) as ended:
            main(VERBS[name])
        full.flush()  # as at exit: what could not be written is discarded
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: standard output: cannot be written (No space left on device); make room, or send it elsewhere\n"
    )


def test_debug_shows_the_error() -> None:
    with (
        Path("/dev/full").open("w") as full,
        redirect_stdout(full),
        pytest.raises(OSError, match="No space left on device"),
    ):
        main(["--version", "--debug"])


def test_full_stderr_ends_no_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder, recipe(folder))
    with Path("/dev/full").open("w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            main(["train", str(path), "--out", "trained", "--device", "cpu"])
        assert not ended.value.code
        with pytest.raises(SystemExit) as ended:
            main(["info", "nothing"])
        assert ended.value.code == 2
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            stream.close()


def test_error_of_a_file_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from regard.cli import info

    def fail() -> None:
        raise PermissionError(13, "Permission denied", "some/file")

    monkeypatch.setattr(info, "info", fail)
    with pytest.raises(SystemExit) as ended:
        main(["info"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: some/file: Permission denied; give another path\n"


def test_full_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fill_memory(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(cli, "_run_verb", fill_memory)
    with pytest.raises(SystemExit) as ended:
        main(["info", "run"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: out of memory; give less text at a time")
    with pytest.raises(MemoryError):
        main(["info", "run", "--debug"])
