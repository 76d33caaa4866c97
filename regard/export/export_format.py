"""The interface of an export format: what it accepts, how it is written, and how its engine runs the result.

ctranslate2_format.py, onnx_format.py and hf_format.py implement it; exporting.py lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from regard.errors import MissingExtra
from regard.export.comparison import Comparison
from regard.export.source_model import SourceModel

EXTRA = "export"
"""The extra that installs all engines."""


class ExportFormat(ABC):
    """One target of an export; `modules` are what its engine needs, `quantizations` the types of weights it has."""

    name: str
    engine: str
    modules: Sequence[str] = ()
    quantizations: Sequence[str] = ()

    def require_engine(self) -> None:
        """Raise an error with the command that installs the engine, if it is not installed."""
        if not self.is_installed():
            raise MissingExtra(f"an export to {self.engine}", EXTRA)

    def is_installed(self) -> bool:
        return all(find_spec(module) is not None for module in self.modules)

    @abstractmethod
    def check_expressible(self, source: SourceModel) -> None:
        """Refuse features that the engine cannot express, by name, before anything is written."""

    @abstractmethod
    def write(self, directory: Path, source: SourceModel, quantization: str) -> None:
        """Write the files of the engine into an empty directory."""

    @abstractmethod
    def compare(self, directory: Path, source: SourceModel, comparison: Comparison) -> None:
        """Run the exported model on sample inputs, and compare it with regard."""

    @abstractmethod
    def usage(self, directory_name: str, source: SourceModel) -> str:
        """Return a Python script that uses the result."""
