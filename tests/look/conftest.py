"""A browser for the tests of the page, which open a file in it or draw on a stage; without one they are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_driver import Mount, OpenFile, OpenPage
from sample_view_data import make_view_data

from regard.disk import json_text
from regard.look.render.page import build_page_data, bundle_script, read_stylesheet
from regard.look.render.plots import plot_view
from regard.look.views.view_data import ViewData

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ["--no-first-run", "--no-sandbox", *(f"--disable-{what}" for what in QUIET)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    play = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'regard[dev]'")
    if CHROMIUM is None:
        pytest.skip("needs a browser: no chromium, chromium-browser or google-chrome on the path")
    with play.sync_playwright() as started:
        yield (opened := started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS))
        opened.close()


@pytest.fixture
def open_file(browser: Any, tmp_path: Path) -> Iterator[OpenFile]:
    """Opens a page from its file; in the end, nothing may have been asked of the network, and nothing complained of."""
    contexts: list[Any] = []
    found: list[tuple[OpenPage, str]] = []

    def opens(
        text: str, *, width: int = 1600, scheme: str = "light", built: bool = True, unfolded: bool = True
    ) -> OpenPage:
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme))
        opened = OpenPage(contexts[-1].new_page())
        found.append((opened, path.as_uri()))
        opened.tab.goto(path.as_uri())
        if built:
            opened.until(built="true")
        if unfolded and built:
            opened.unfold()
        return opened

    yield opens
    for opened, address in found:
        assert {url for url in opened.asked if not url.startswith(("data:", "about:"))} <= {address}
        assert opened.complaints == []
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def stage(browser: Any) -> OpenPage:
    """A page of somebody else, with the component in it."""
    opened = OpenPage(browser.new_page(viewport={"width": 1600, "height": 1000}, color_scheme="light"))
    opened.tab.set_content(
        f"<!doctype html><style>{read_stylesheet()}</style><div id=look></div><script>{bundle_script()}</script>"
    )
    return opened


@pytest.fixture
def mount(stage: OpenPage) -> Iterator[Mount]:
    """Draws view data on the stage, in the place of the one before."""

    def mounts(seen: ViewData) -> OpenPage:
        stage.tab.bring_to_front()
        stage.tab.mouse.move(1, 1)
        swap = """packed => { if (window.seen) window.seen.destroy(); scrollTo(0, 0);
            window.seen = regardLook(document.getElementById("look"), packed); }"""
        stage.tab.evaluate(swap, json.loads(json_text(build_page_data(seen))))
        stage.until(built="true")
        stage.unfold()
        return stage

    yield mounts
    assert stage.complaints == []


@pytest.fixture(scope="module")
def whole() -> ViewData:
    return make_view_data()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[ViewData], Any]:
    """Draws view data; gives the figure, laid out as in a file."""
    Figure = pytest.importorskip("matplotlib.figure").Figure

    figures: list[Any] = []

    def keep(figure: Any, path: Path, **_: Any) -> None:
        figure.get_layout_engine().execute(figure)
        path.write_bytes(b"")
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)

    def draw(data: ViewData) -> Any:
        plot_view(data, tmp_path / "figure.png")
        return figures.pop()

    return draw
