"""What can be shown and saved as a sheet: the base of what `look` finds that is not of one text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from regard.look.render.page import render_iframe
from regard.look.render.save import save_view, show_view
from regard.look.views.view_data import ViewData


class RenderableView(ABC):
    """Makes a sheet, which every way of showing takes."""

    @abstractmethod
    def view_data(self) -> ViewData:
        """All numbers with their axes, and what there is to say."""

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write it as the suffix says: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf."""
        return save_view(lambda: self.view_data(**options), path)

    def show(self, **options: Any) -> None:
        """The page in a notebook, characters in a terminal."""
        show_view(self.view_data(**options))

    def _repr_html_(self) -> str:
        return render_iframe(self.view_data())
