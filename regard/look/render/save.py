"""A sheet on the disk or on the screen: the suffix of a path, or where we are, says in which form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.disk import check_writable, convert_write_errors, write_text
from regard.errors import InputError
from regard.look.render.figures import new_figure
from regard.look.render.page import render_iframe, render_page
from regard.look.render.plots import plot_view, single_view_message
from regard.look.render.tables import to_csv, to_json
from regard.look.render.terminal import render_text
from regard.look.views.view_data import ViewData

ViewWriter = Callable[[ViewData, Path], object]

TEXT_WRITERS: dict[str, ViewWriter] = {
    ".html": lambda sheet, path: write_text(path, render_page(sheet)),
    ".json": lambda sheet, path: write_text(path, to_json(sheet) + "\n"),
    ".csv": lambda sheet, path: write_text(path, to_csv(sheet)),
}
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def holds_all_views(path: str | Path) -> bool:
    """Whether a file shows all views where none is named: a page and JSON do, a figure and a table show one."""
    return Path(path).suffix.lower() in (".html", ".json")


def check_output_path(path: str | Path, views: Sequence[str] = ()) -> Path:
    """The path, if these views can be written there, in a form we have: asked before the work, which may take long."""
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix not in (*TEXT_WRITERS, *FIGURE_SUFFIXES):
        found = f"unknown suffix '{place.suffix}'" if suffix else "no suffix"
        raise InputError(f"{place}: {found}; known: {', '.join((*TEXT_WRITERS, *FIGURE_SUFFIXES))}")
    if suffix in FIGURE_SUFFIXES:
        if len(views) > 1:
            raise InputError(single_view_message(place, views))
        new_figure(1.0, 1.0)  # says what to install where it cannot be drawn
    check_writable(place)
    return place


def save_view(make_view_data: Callable[[], ViewData], path: str | Path, write_figure: ViewWriter = plot_view) -> Path:
    """Write what `sheet` makes, which is only asked when the path can be written; `draw` makes the figures."""
    place = check_output_path(path)
    made = make_view_data()
    with convert_write_errors(place):
        TEXT_WRITERS.get(place.suffix.lower(), write_figure)(made, place)
    return place


def show_view(view_data: ViewData) -> None:
    """In a notebook the page, elsewhere a map of characters."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found, unused-ignore]
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        notebook = get_ipython() is not None and "IPKernelApp" in get_ipython().config
    except ImportError:
        notebook = False
    if notebook:
        display(HTML(render_iframe(view_data)))
    else:
        print(render_text(view_data))
