"""Saving: the suffix says the form, what cannot be written is refused before the work, and nothing is half-written."""

from __future__ import annotations

import csv
import errno
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from sample_view_data import make_view_data

from regard.errors import InputError, MissingExtra
from regard.look.render.page import render_page
from regard.look.render.save import FIGURE_SUFFIXES, check_output_path, save_view, show_view
from regard.look.render.terminal import render_text
from regard.look.views.view_data import ViewData

BEGINNINGS = {
    ".html": b"<!",
    ".json": b"{",
    ".csv": b"view,",
    ".png": b"\x89PNG\r\n",
    ".svg": b"<?xml",
    ".pdf": b"%PDF",
}


def one_view() -> ViewData:
    data = make_view_data(("cross",), source=3, target=3, n_layers=1, n_heads=1)
    return ViewData(data.sides, list(data.arrays_of("attention")), {}, data.about)


def not_asked() -> NoReturn:
    pytest.fail("the work was begun")


@pytest.mark.parametrize("suffix", [*BEGINNINGS, ".PNG", ".Json"])
def test_the_suffix_sets_the_format(suffix: str, tmp_path: Path) -> None:
    if suffix.lower() in FIGURE_SUFFIXES:
        pytest.importorskip("matplotlib")
    path = tmp_path / f"look{suffix}"
    path.write_text("before")
    assert save_view(one_view, str(path)) == path
    assert path.read_bytes().lstrip().startswith(BEGINNINGS[suffix.lower()])
    assert list(tmp_path.iterdir()) == [path]


def test_saved_files_equal_the_renderers_output(tmp_path: Path) -> None:
    data = one_view()
    assert save_view(lambda: data, tmp_path / "look.html").read_text(encoding="utf-8") == render_page(data)
    assert (
        json.loads(save_view(lambda: data, tmp_path / "look.json").read_text(encoding="utf-8"))["sides"] == data.sides
    )
    with save_view(lambda: data, tmp_path / "look.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.reader(file))) == 1 + 3 * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("look.xyz", "look.xyz: unknown suffix '.xyz'; known: .html, .json, .csv, .png, .svg, .pdf"),
        ("look", "look: no suffix; known: .html, .json, .csv, .png, .svg, .pdf"),
        ("no/look.json", "no/look.json: cannot be written: no directory no; make it first"),
        ("file/look.json", "file/look.json: cannot be written: no directory file; make it first"),
        ("folder.json", "folder.json: cannot be written: is a directory; name a file in it"),
        (
            "y" * 300 + ".json",
            "y" * 300 + ".json: cannot be written (File name too long); make room, or choose another path",
        ),
    ],
)
def test_an_unwritable_path_is_refused_before_computing(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("folder.json").mkdir()
    with pytest.raises(InputError) as caught:
        save_view(not_asked, name)
    assert str(caught.value) == message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.json"]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a directory that nobody can write to")
def test_a_directory_that_nobody_can_write_to() -> None:
    message = r"^/sys/kernel/look.json: cannot be written \(.*\); make room, or choose another path$"
    with pytest.raises(InputError, match=message):
        save_view(not_asked, "/sys/kernel/look.json")


def test_without_matplotlib_a_figure_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"^a figure needs the extra 'plot'; run: pip install 'regard\[plot\]'$"):
        save_view(not_asked, tmp_path / "look.svg")
    assert check_output_path(tmp_path / "look.html", ["attention", "norms"]) == tmp_path / "look.html"


def test_a_figure_of_several_views_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"a figure shows one view; choose one of: rollout, norms, or write look.html$"
    ):
        check_output_path(tmp_path / "look.pdf", ["rollout", "norms"])


@pytest.mark.parametrize("suffix", [".html", ".csv", ".png"])
def test_a_full_disk_leaves_the_previous_file(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if suffix in FIGURE_SUFFIXES:
        pytest.importorskip("matplotlib")
    path = tmp_path / f"look{suffix}"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"cannot be written \(No space left on device\); make room, or choose another path$"
    with pytest.raises(InputError, match=message):
        save_view(one_view, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_outside_a_notebook_a_map_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show_view(one_view())
    assert capsys.readouterr().out == render_text(one_view()) + "\n"
