"""Commands that must fail, in a folder with a good corpus and, on request, a trained run that may be damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import recipe, trained

from regard.cli import main

Fail = Callable[..., str]


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Fail:
    """Run a command that must fail; gives what its one line says after ``error:``."""

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
    """Every test works in a folder of its own, with a good corpus in it."""
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
