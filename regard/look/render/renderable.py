"""Base class of corpus-level results that can be shown and saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from regard.look.render.page import render_iframe
from regard.look.render.save import save_view, show_view
from regard.look.views.view_data import ViewData


class RenderableView(ABC):
    """A result with view data, which every renderer takes."""

    @abstractmethod
    def view_data(self) -> ViewData:
        """Return all arrays and sentences."""

    def save(self, path: str | Path) -> Path:
        """Write it in the format of the suffix: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf."""
        return save_view(self.view_data, path)

    def show(self) -> None:
        """Show the page in a notebook, text in a terminal."""
        show_view(self.view_data())

    def _repr_html_(self) -> str:
        return render_iframe(self.view_data())
