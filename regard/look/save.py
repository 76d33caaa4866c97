"""A sheet on the disk or on the screen: the suffix of a path, or where we are, says in which form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from regard.disk import write_text
from regard.errors import InputError
from regard.look.page import framed, page
from regard.look.plots import plot
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


def check_form(path: str | Path) -> Path:
    """The path, if something can be written there in a form we have."""
    place = Path(path)
    if place.suffix not in (*FORMS, *FIGURES):
        raise InputError(f"{place}: unknown suffix '{place.suffix}'; known: {', '.join((*FORMS, *FIGURES))}")
    if place.is_dir() or not place.parent.is_dir():
        raise InputError(
            f"{place}: cannot be written: " + ("is a directory" if place.is_dir() else "no such directory")
        )
    return place


def save(sheet: Callable[[], Sheet], path: str | Path, draw: Draw = plot) -> Path:
    """Write what `sheet` makes, which is only asked when the path can be written; `draw` makes the figures."""
    place = check_form(path)
    made = sheet()
    try:
        FORMS.get(place.suffix, draw)(made, place)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {error.strerror or error}") from None
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
