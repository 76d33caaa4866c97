"""A sheet as a figure for paper or screen: one view, a row of panels for each kind. Needs the extra `plot`.

    panel.py     what panels share: size, names, headings        maps.py     numbers over two axes, in colours
    caption.py   what was looked at, over the figure             lines.py    curves and bars
                                                                 points.py   maps of points and their legend
                                                                 labels.py   where the names of points go

Arrays over two texts are maps (small multiples by layer and head, one large map where one is chosen), numbers of
heads a map of heads, what changes with the layer a curve. Standard errors are drawn where they belong to bars only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.disk import write_aside
from regard.errors import InputError
from regard.look.figures import new_figure
from regard.look.plots import lines, maps, points
from regard.look.plots.caption import LINE, caption
from regard.look.plots.panel import Panel, heading
from regard.look.view import Array, Sheet
from regard.progress import warn

WIDEST = 11.0
"""Inches of panels beside each other; one alone may be wider."""

FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Segoe UI Emoji", "Noto Emoji"),
]
"""For letters that matplotlib's own font does not have, where one of these is installed."""


def plot(sheet: Sheet, path: Path) -> Path:
    """Draw the view of a sheet; the suffix says the form: .png, .svg or .pdf."""
    views = list(dict.fromkeys(array.view for array in sheet.arrays))
    if len(views) > 1:
        raise InputError(one_view(path, views))
    rows = _rows([panel for array in sheet.arrays if (panel := _panel(sheet, array)) is not None])
    width = max(sum(panel.width for panel in row) for row in rows)
    heights = [max(panel.height for panel in row) for row in rows]
    said = caption(sheet.about, width)
    figure = new_figure(width, sum(heights) + LINE * len(said))
    with _styled():
        if said:
            figure.suptitle("\n".join(said), x=0.1 / width, ha="left", fontsize=9)
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, row in zip(parts, rows, strict=True):
            _draw_row(part, row, width, sheet)
        write_aside(path, lambda aside: figure.savefig(aside, format=path.suffix.removeprefix("."), dpi=300))
    return path


def one_view(path: Path, views: Sequence[str]) -> str:
    """What to say where several views are to be drawn."""
    return f"{path}: a figure shows one view; choose one of: {', '.join(views)}, or write {path.stem}.html"


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels of one kind stand beside each other, as far as there is room."""
    rows: list[list[Panel]] = []
    for panel in panels:
        room = WIDEST - sum(other.width for other in rows[-1]) if rows else 0.0
        if panel.width <= room and rows[-1][0].array.kind == panel.array.kind:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _draw_row(part: Any, row: Sequence[Panel], width: float, sheet: Sheet) -> None:
    """Panels beside each other, from the left, each under its heading."""
    rest = width - sum(panel.width for panel in row) + 0.01
    cells = part.subfigures(1, len(row) + 1, width_ratios=[*(panel.width for panel in row), rest])
    headings = [heading(panel.array, panel.width) for panel in row]
    n_lines = max(said.count("\n") for said in headings)
    for cell, panel, said in zip(cells, row, headings, strict=False):
        cell.suptitle(said + "\n" * (n_lines - said.count("\n")), fontsize=8)  # so that panels begin at one height
        panel.draw(cell, sheet, panel.array)


@contextmanager
def _styled() -> Iterator[None]:
    """Sizes and fonts for everything that is drawn; letters that no font has are counted as one warning."""
    import matplotlib
    from matplotlib import font_manager

    there = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in FONTS if font in there)]
    settings: Any = {"font.family": fonts, "font.size": 8, "figure.labelsize": 8, "text.parse_math": False}
    settings |= {f"{part}.labelsize": 7 for part in ("xtick", "ytick")} | {"axes.labelsize": 8, "legend.fontsize": 7}
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph")
        yield
    if any("Glyph" in str(warning.message) for warning in caught):
        warn("some letters are in no font that is installed here; the figure has boxes in their place")


def _panel(sheet: Sheet, array: Array) -> Panel | None:
    """How an array is drawn; not at all where it is only an error, or colours."""
    names, shape = [axis.name for axis in array.axes], array.values.shape
    if array.nature in ("error", "label") or not array.values.numel():
        return None
    if names[-1] == "coordinate":
        return points.panel(sheet, array)
    if len(names) >= 2 and all(axis.over for axis in array.axes[-2:]):
        return maps.over_tokens(sheet, array)
    if names[-2:] == ["row", "column"]:
        return maps.of_vectors(array, 3.6)
    if names == ["position", "dimension"]:
        return maps.of_vectors(array, 6.5)
    if names == ["layer", "head", "dimension"]:
        return lines.of_heads(array)
    if names[:2] == ["layer", "head"]:
        return maps.of_heads(array)
    if names == ["method", "k"]:
        return lines.of_methods(array)
    if names[0] == "layer":
        return lines.over_layers(array)
    if len(names) == 2 and shape[1] > 1:
        return maps.large(sheet, array)
    return lines.bars(array)
