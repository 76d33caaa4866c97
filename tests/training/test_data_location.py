"""Runs resumed in another directory than the one they were started in, with relative paths in their recipes."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest
from tiny_runs import contents, ready, recipe, trained

from regard import config
from regard.errors import DataError
from regard.runs.run_directory import STARTED_IN, RunDirectory
from regard.training.loop import Trainer


def start_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> config.Tables:
    """Enter a folder, write a corpus there, and return a recipe that names it by relative paths."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    return recipe(Path())


def test_data_is_found_where_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = start_in(tmp_path / "first", monkeypatch)
    trained(tables, tmp_path / "whole")
    trainer = Trainer(ready(tables, tmp_path / "run"))
    for event in trainer.train():
        if event.step == 3:
            trainer.request_stop()
    capfd.readouterr()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    trained({"train": {"patience": 7}}, tmp_path / "run", resume=True)
    err = capfd.readouterr().err
    assert f"data       read from {tmp_path / 'first'}, where the run was started\n" in err
    assert "encoded again" not in err
    assert RunDirectory(tmp_path / "run").read_notes() == {STARTED_IN: str(tmp_path / "first")}
    same = ("model", "log")
    assert [contents(tmp_path / "run")[key] for key in same] == [contents(tmp_path / "whole")[key] for key in same]


def test_text_is_encoded_again_from_where_the_run_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(start_in(tmp_path / "first", monkeypatch), tmp_path / "run")
    rmtree(tmp_path / "run" / "store")
    monkeypatch.chdir(tmp_path)
    assert len(ready({}, tmp_path / "run", resume=True).train_store) == 24


def test_data_in_this_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that was moved as a whole."""
    ready(start_in(tmp_path / "first", monkeypatch), tmp_path / "run")
    (tmp_path / "first").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert len(ready({}, tmp_path / "run", resume=True).train_store) == 24


def resume_error(run: Path) -> str:
    with pytest.raises(DataError) as caught:
        ready({}, run, resume=True)
    return str(caught.value)


def test_missing_data_is_named_with_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(start_in(tmp_path / "first", monkeypatch), tmp_path / "run")
    (tmp_path / "first" / "valid.src").unlink()
    assert resume_error(tmp_path / "run") == "valid.src: no such file"
    monkeypatch.chdir(tmp_path)
    where = f"neither here nor in {tmp_path / 'first'}, where the run was started"
    assert resume_error(tmp_path / "run") == f"valid.src: no such file, {where}; put it back"


def test_run_of_an_earlier_version_says_what_paths_are_relative_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(start_in(tmp_path / "first", monkeypatch), tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line[0] != "#"))
    monkeypatch.chdir(tmp_path)
    relative = "the path is relative to the directory that the run was started in: resume it there"
    assert resume_error(tmp_path / "run") == f"train.src: no such file; {relative}"


def test_model_to_start_from_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = start_in(tmp_path / "first", monkeypatch)
    trained(tables, Path("pretrained"))
    fine_tuned = {"task": tables["task"], "data": tables["data"], "model": {"start": "pretrained"}}
    ready(fine_tuned, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert ready({}, tmp_path / "run", resume=True).config.model.start == "pretrained"


def test_name_of_the_directory_may_hold_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a damaged line of config.toml would hold, line ends and bytes that are no UTF-8."""
    folder = tmp_path / 'config.toml crc32:"\n\udcff é'
    ready(start_in(folder, monkeypatch), tmp_path / "run")
    assert RunDirectory(tmp_path / "run").read_notes() == {STARTED_IN: str(folder)}
    monkeypatch.chdir(tmp_path)
    assert len(ready({}, tmp_path / "run", resume=True).train_store) == 24
