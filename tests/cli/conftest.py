"""Fixtures that run commands, in a folder with a valid corpus and, on request, a trained run that may be damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import recipe, trained

from regard.cli import main

Fail = Callable[..., str]
Called = Callable[..., tuple[int, str, str]]
Regard = Callable[..., tuple[str, str]]

ANYWHERE = ("info", "import", "export", "models")
"""Commands without --device."""


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Called:
    """Run a command on the CPU; return its exit status, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        on = [] if arguments[0] in ANYWHERE else ["--device", "cpu"]
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), *on])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return run


@pytest.fixture
def regard(called: Called) -> Regard:
    """Run a command that must succeed; return its stdout and stderr."""

    def run(*arguments: object) -> tuple[str, str]:
        code, out, err = called(*arguments)
        assert code == 0, err
        return out, err

    return run


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Fail:
    """Run a command that must fail; return its one line after ``error:``."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == 2, err
        assert out == ""
        assert len(err.splitlines()) == 1, err
        assert err.startswith("error: ")
        return err.removeprefix("error: ").rstrip("\n")

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a folder of its own with a valid corpus in it."""
    monkeypatch.chdir(tmp_path)
    recipe(Path())
    return tmp_path


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    trained(recipe(folder), folder / "run")
    return folder / "run"


@pytest.fixture
def run(trained_run: Path, folder: Path) -> Path:
    """A trained run that may be damaged."""
    shutil.copytree(trained_run, "run")
    return Path("run")
