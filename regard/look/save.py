"""A sheet on the disk or on the screen: the suffix of a path, or where we are, says in which form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.disk import check_writable, unwritable, write_text
from regard.errors import InputError
from regard.look.figures import new_figure
from regard.look.page import framed, page
from regard.look.plots import one_view, plot
from regard.look.tables import as_csv, as_json
from regard.look.terminal import drawn
from regard.look.view import Sheet

Draw = Callable[[Sheet, Path], object]

FORMS: dict[str, Draw] = {
    ".html": lambda sheet, path: write_text(path, page(sheet)),
    ".json": lambda sheet, path: write_text(path, as_json(sheet) + "\n"),
    ".csv": lambda sheet, path: write_text(path, as_csv(sheet)),
}
FIGURES = (".png", ".svg", ".pdf")


def holds_all(path: str | Path) -> bool:
    """Whether a file shows all views where none is named: a page and JSON do, a figure and a table show one."""
    return Path(path).suffix.lower() in (".html", ".json")


def check_form(path: str | Path, views: Sequence[str] = ()) -> Path:
    """The path, if these views can be written there, in a form we have: asked before the work, which may take long."""
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix not in (*FORMS, *FIGURES):
        found = f"unknown suffix '{place.suffix}'" if suffix else "no suffix"
        raise InputError(f"{place}: {found}; known: {', '.join((*FORMS, *FIGURES))}")
    if suffix in FIGURES:
        if len(views) > 1:
            raise InputError(one_view(place, views))
        new_figure(1.0, 1.0)  # says what to install where it cannot be drawn
    check_writable(place)
    return place


def save(sheet: Callable[[], Sheet], path: str | Path, draw: Draw = plot) -> Path:
    """Write what `sheet` makes, which is only asked when the path can be written; `draw` makes the figures."""
    place = check_form(path)
    made = sheet()
    try:
        FORMS.get(place.suffix.lower(), draw)(made, place)
    except OSError as error:
        raise unwritable(place, error) from None
    return place


def show(sheet: Sheet) -> None:
    """In a notebook the page, elsewhere a map of characters."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found, unused-ignore]
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        notebook = get_ipython() is not None and "IPKernelApp" in get_ipython().config
    except ImportError:
        notebook = False
    if notebook:
        display(HTML(framed(sheet)))
    else:
        print(drawn(sheet))
