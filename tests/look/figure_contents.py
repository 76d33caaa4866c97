"""What is to be seen on a figure that was drawn."""

from __future__ import annotations

from typing import Any


def maps(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.images]


def texts(figure: Any) -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def within(figure: Any) -> bool:
    """Whether everything that is drawn lies on its own part of the figure: nothing is cut off or covers another."""
    panels = [panel for row in figure.subfigs for panel in row.subfigs]
    for panel in panels:
        boxes = [axes.get_tightbbox() for axes in panel.axes] + [text.get_window_extent() for text in panel.texts]
        low, high, slight = panel.bbox.min, panel.bbox.max, 2.0
        if any((box.min < low - slight).any() or (box.max > high + slight).any() for box in boxes if box is not None):
            return False
    return bool(panels)
