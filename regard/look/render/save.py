"""Saving and showing view data: the suffix of a path, or the environment, sets the format."""

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
    """Return True if a file contains all views when none is named: a page or JSON; figures and tables contain one."""
    return Path(path).suffix.lower() in (".html", ".json")


def check_output_path(path: str | Path, views: Sequence[str] = ()) -> Path:
    """Return the path if these views can be written there; called before any long computation."""
    output_path = Path(path)
    suffix = output_path.suffix.lower()
    if suffix not in (*TEXT_WRITERS, *FIGURE_SUFFIXES):
        problem = f"unknown suffix '{output_path.suffix}'" if suffix else "no suffix"
        raise InputError(f"{output_path}: {problem}; known: {', '.join((*TEXT_WRITERS, *FIGURE_SUFFIXES))}")
    if suffix in FIGURE_SUFFIXES:
        if len(views) > 1:
            raise InputError(single_view_message(output_path, views))
        new_figure(1.0, 1.0)  # raises with the install command where matplotlib is missing
    check_writable(output_path)
    return output_path


def save_view(make_view_data: Callable[[], ViewData], path: str | Path, write_figure: ViewWriter = plot_view) -> Path:
    """Write the view data that `make_view_data` returns, called only if the path is writable."""
    output_path = check_output_path(path)
    view_data = make_view_data()
    with convert_write_errors(output_path):
        TEXT_WRITERS.get(output_path.suffix.lower(), write_figure)(view_data, output_path)
    return output_path


def show_view(view_data: ViewData) -> None:
    """Show the page in a notebook, text elsewhere."""
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
