"""View data as a figure: one view, a row of panels per kind of attention. Needs the extra `plot`.

    panel.py        what panels share: size, names, headings    lines.py             curves and bars
    caption.py      what was looked at, over the figure         scatter.py           maps of points and their legend
    heat_maps.py    numbers over two axes, in colours           label_placement.py   where the names of points go

Arrays over two texts are maps (small multiples by layer and head, one large map where one is chosen), numbers of
heads a map of heads, what changes with the layer a curve. Standard errors are drawn where they belong to bars only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.look.render.figures import draw_alone, new_figure, save_figure
from regard.look.render.plots import heat_maps, lines, scatter
from regard.look.render.plots.caption import CAPTION_LINE_HEIGHT, build_caption
from regard.look.render.plots.panel import ArrayPanel, panel_heading
from regard.look.views.view_data import ViewArray, ViewData
from regard.progress import warn

MAX_ROW_WIDTH = 11.0
"""Inches of a row of panels; a single panel may be wider."""

FALLBACK_FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Nirmala UI", "Segoe UI Emoji", "Noto Emoji"),
]
"""Fonts for characters missing from matplotlib's own font, used if installed."""


@draw_alone
def plot_view(view_data: ViewData, path: Path) -> Path:
    """Draw one view; the suffix sets the format: .png, .svg or .pdf."""
    views = list(dict.fromkeys(array.view for array in view_data.arrays))
    if len(views) > 1:
        raise InputError(single_view_message(path, views))
    rows = _arrange_rows(
        [panel for array in view_data.arrays if (panel := _choose_panel(view_data, array)) is not None]
    )
    width = max(sum(panel.width for panel in row) for row in rows)
    heights = [max(panel.height for panel in row) for row in rows]
    caption = build_caption(view_data.about, width)
    figure = new_figure(width, sum(heights) + CAPTION_LINE_HEIGHT * len(caption))
    with _figure_style():
        if caption:
            figure.suptitle("\n".join(caption), x=0.1 / width, ha="left", fontsize=9)
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, row in zip(parts, rows, strict=True):
            _draw_row(part, row, width, view_data)
        return save_figure(figure, path)


def single_view_message(path: Path, views: Sequence[str]) -> str:
    """Return the message for a figure of several views."""
    return f"{path}: a figure shows one view; choose one of: {', '.join(views)}, or write {path.stem}.html"


def _arrange_rows(panels: Sequence[ArrayPanel]) -> list[list[ArrayPanel]]:
    """Arrange panels of one kind in rows, as far as they fit."""
    rows: list[list[ArrayPanel]] = []
    for panel in panels:
        free_width = MAX_ROW_WIDTH - sum(other.width for other in rows[-1]) if rows else 0.0
        if panel.width <= free_width and rows[-1][0].array.kind == panel.array.kind:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _draw_row(subfigure: Any, row: Sequence[ArrayPanel], width: float, view_data: ViewData) -> None:
    """Draw a row of panels, left-aligned, each under its heading."""
    rest = width - sum(panel.width for panel in row) + 0.01
    cells = subfigure.subfigures(1, len(row) + 1, width_ratios=[*(panel.width for panel in row), rest])
    headings = [panel_heading(panel.array, panel.width) for panel in row]
    n_lines = max(heading.count("\n") for heading in headings)
    for cell, panel, heading in zip(cells, row, headings, strict=False):
        # Headings are padded, so that panels begin at one height.
        cell.suptitle(heading + "\n" * (n_lines - heading.count("\n")), fontsize=8)
        panel.draw(cell, view_data, panel.array)


@contextmanager
def _figure_style() -> Iterator[None]:
    """Set sizes and fonts; characters missing from every font give one warning."""
    import matplotlib
    from matplotlib import font_manager

    available = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in FALLBACK_FONTS if font in available)]
    settings: Any = {"font.family": fonts, "font.size": 8, "figure.labelsize": 8, "text.parse_math": False}
    settings |= {f"{part}.labelsize": 7 for part in ("xtick", "ytick")} | {"axes.labelsize": 8, "legend.fontsize": 7}
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph")
        yield
    for warning in caught:
        if "Glyph" in str(warning.message):
            warn("some characters are missing from the installed fonts; the figure shows boxes instead")
        else:  # of drawing, or of another thread
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _choose_panel(view_data: ViewData, array: ViewArray) -> ArrayPanel | None:
    """Choose the panel of an array; None for errors and labels."""
    names, shape = [axis.name for axis in array.axes], array.values.shape
    if array.value_kind in ("error", "label") or not array.values.numel():
        return None
    if names[-1] == "coordinate":
        return scatter.scatter_panel(view_data, array)
    if len(names) >= 2 and all(axis.over for axis in array.axes[-2:]):
        return heat_maps.token_map_panel(view_data, array)
    if names[-2:] == ["row", "column"]:
        return heat_maps.vector_map_panel(array, 3.6)
    if names == ["position", "dimension"]:
        return heat_maps.vector_map_panel(array, 6.5)
    if names == ["layer", "head", "dimension"]:
        return lines.eigenvalue_panel(array)
    if names[:2] == ["layer", "head"]:
        return heat_maps.head_map_panel(array)
    if names == ["method", "k"]:
        return lines.faithfulness_panel(array)
    if names[0] == "layer":
        return lines.layer_curve_panel(array)
    if len(names) == 2 and shape[1] > 1:
        return heat_maps.large_map_panel(view_data, array)
    return lines.bar_panel(array)
