"""The directory of a comparison: settings, measurements and figure of every finished experiment, and the report.

    compare.json    the settings                   PART.json   all measurements of an experiment, with the machine
    report.html     everything on one page         PART.png    its figure

A comparison is resumed with the same settings and the same text; any other existing directory is refused. The lock of
the directory is held by whoever uses this.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.compare.corpora import hash_data_files
from regard.compare.experiment import ComparisonSettings, Measurements
from regard.disk import convert_write_errors, read_json, write_json, write_text
from regard.errors import CheckpointError, InputError
from regard.runs.directory_lock import is_empty_directory

MEASUREMENTS_KEY = "found"
"""Key of the measurements in the file of an experiment; the other keys are the fields of `ExperimentResult`."""


@dataclass(frozen=True)
class ExperimentResult:
    """The measurements of an experiment, the machine, the seconds they took, and the command."""

    measurements: Measurements
    machine: dict[str, str]
    seconds: float
    command: str


class ComparisonDirectory:
    """The directory named by the settings."""

    def __init__(self, settings: ComparisonSettings) -> None:
        self.path, self.settings = settings.out, settings
        self._requested = {**settings.to_json(), "content": hash_data_files(settings)}
        self._settings_path = self.path / "compare.json"
        if not self._settings_path.exists():
            if not is_empty_directory(self.path):
                raise InputError(f"{self.path}: exists and is not a comparison; choose another --out, or delete it")
            return
        self._check_same_settings(read_json(self._settings_path))

    def _check_same_settings(self, previous: dict[str, Any]) -> None:
        """Refuse to resume with other settings or other text."""
        for name in dict.fromkeys((*self._requested, *previous)):
            before, value = previous.get(name), self._requested.get(name)
            if before != value:
                problem = f"holds a comparison with {name} {before!r}, not {value!r}"
                if name == "content":
                    problem = "holds a comparison on other contents of the data files"
                raise InputError(f"{self.path}: {problem}; choose another --out, or delete it")

    def write_settings(self) -> None:
        """Write the settings."""
        with convert_write_errors(self.path):
            write_json(self._settings_path, self._requested)

    def has_result(self, name: str) -> bool:
        """Return True if an experiment has ended."""
        return self._result_path(name).exists()

    def read_result(self, name: str) -> ExperimentResult:
        """Read a finished experiment."""
        path = self._result_path(name)
        try:
            values = read_json(path)
            return ExperimentResult(values.pop(MEASUREMENTS_KEY), **values)
        except (AttributeError, KeyError, TypeError):
            raise CheckpointError(f"{path}: not a part of a comparison; delete it, and it is measured again") from None

    def read_measurements(self) -> dict[str, Measurements]:
        """Read the measurements of all finished experiments, by name."""
        names = [path.stem for path in sorted(self.path.glob("*.json")) if path != self._settings_path]
        return {name: self.read_result(name).measurements for name in names}

    def write_result(self, name: str, result: ExperimentResult) -> None:
        """Write a finished experiment."""
        with convert_write_errors(self.path):
            values = asdict(result)
            write_json(self._result_path(name), {MEASUREMENTS_KEY: values.pop("measurements"), **values})

    def figure_path(self, name: str) -> Path:
        """Return the path of an experiment's figure."""
        return self.path / f"{name}.png"

    def write_report(self, page: str) -> None:
        """Write the report."""
        with convert_write_errors(self.path):
            write_text(self.settings.report_path, page)

    def _result_path(self, name: str) -> Path:
        return self.path / f"{name}.json"
