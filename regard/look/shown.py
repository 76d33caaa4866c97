"""What can be shown and saved as a sheet: the base of what `look` finds that is not of one text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from regard.look.page import framed
from regard.look.save import save, show
from regard.look.view import Sheet


class Shown(ABC):
    """Makes a sheet, which every way of showing takes."""

    @abstractmethod
    def sheet(self) -> Sheet:
        """All numbers with their axes, and what there is to say."""

    def save(self, path: str | Path, **asked: Any) -> Path:
        """Write it as the suffix says: .html, .json, .csv, and with the extra `plot` .png, .svg or .pdf."""
        return save(lambda: self.sheet(**asked), path)

    def show(self, **asked: Any) -> None:
        """The page in a notebook, characters in a terminal."""
        show(self.sheet(**asked))

    def _repr_html_(self) -> str:
        return framed(self.sheet())
