"""The folder of a comparison: settings, then for every part that has ended its numbers and its figure, and one page.

    compare.json    what was asked for             PART.json   all numbers of a part, with the machine
    report.html     everything on one page         PART.png    its figure

A folder goes on where it was stopped, by the same settings and on the same text; any other folder that is there
already is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.compare.corpora import hash_data_files
from regard.compare.experiment import ComparisonSettings, Measurements
from regard.disk import convert_write_errors, read_json, write_json, write_text
from regard.errors import CheckpointError, InputError


@dataclass(frozen=True)
class ExperimentResult:
    """What a part found, on which machine, in how many seconds, by which command."""

    found: Measurements
    machine: dict[str, str]
    seconds: float
    command: str


class ComparisonDirectory:
    """The folder that a setting names."""

    def __init__(self, settings: ComparisonSettings) -> None:
        self.path, self.settings = settings.out, settings
        self._requested = {**settings.to_json(), "content": hash_data_files(settings)}
        self._settings_path = self.path / "compare.json"
        if not self.path.exists():
            return
        if not self._settings_path.exists():
            if not self.path.is_dir() or any(self.path.iterdir()):
                raise InputError(f"{self.path}: already there, and no comparison; choose another --out, or delete it")
            return
        self._check_same_settings(read_json(self._settings_path))

    def _check_same_settings(self, previous: dict[str, Any]) -> None:
        """A comparison is of one setting, and of one text."""
        for name, value in self._requested.items():
            if previous.get(name) != value:
                found = f"a comparison with {name} {previous.get(name)!r} is there, not {value!r}"
                if name == "content":
                    found = "a comparison is there of what the files of --data and --tagged held before"
                raise InputError(f"{self.path}: {found}; choose another --out, or delete it")

    def create(self) -> None:
        """Make the folder, and note down what was asked for."""
        with convert_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self._settings_path, self._requested)

    def has_result(self, name: str) -> bool:
        """Whether a part has ended."""
        return self._result_path(name).exists()

    def read_result(self, name: str) -> ExperimentResult:
        """A part that has ended."""
        place = self._result_path(name)
        try:
            return ExperimentResult(**read_json(place))
        except TypeError:
            raise CheckpointError(f"{place}: not a part of a comparison; delete it, and it is measured again") from None

    def read_measurements(self) -> dict[str, Measurements]:
        """The numbers of all parts that have ended, by name."""
        names = [place.stem for place in sorted(self.path.glob("*.json")) if place != self._settings_path]
        return {name: self.read_result(name).found for name in names}

    def write_result(self, name: str, result: ExperimentResult) -> None:
        """Write down a part."""
        with convert_write_errors(self.path):
            write_json(self._result_path(name), asdict(result))

    def figure_path(self, name: str) -> Path:
        """Where the figure of a part is, or will be."""
        return self.path / f"{name}.png"

    def write_report(self, page: str) -> None:
        """The page of all parts."""
        with convert_write_errors(self.path):
            write_text(self.settings.report_path, page)

    def _result_path(self, name: str) -> Path:
        return self.path / f"{name}.json"
