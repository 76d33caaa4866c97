"""The folder of a comparison: settings, then for every part that has ended its numbers and its figure, and one page.

    compare.json    what was asked for             PART.json   all numbers of a part, with the machine
    report.html     everything on one page         PART.png    its figure

A folder goes on where it was stopped, by the same settings and on the same text; any other folder that is there
already is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.compare.corpora import content
from regard.compare.part import Found, Setting
from regard.disk import read_json, write_json, write_text
from regard.errors import CheckpointError, InputError


@dataclass(frozen=True)
class Kept:
    """What a part found, on which machine, in how many seconds, by which command."""

    found: Found
    machine: dict[str, str]
    seconds: float
    command: str


class Folder:
    """The folder that a setting names."""

    def __init__(self, setting: Setting) -> None:
        self.path, self.setting = setting.out, setting
        self._asked = {**setting.json(), "content": content(setting)}
        self._settings = self.path / "compare.json"
        if not self.path.exists():
            return
        if not self._settings.exists():
            if not self.path.is_dir() or any(self.path.iterdir()):
                raise InputError(f"{self.path}: already there, and no comparison; choose another --out, or delete it")
            return
        self._same(read_json(self._settings))

    def _same(self, before: dict[str, Any]) -> None:
        """A comparison is of one setting, and of one text."""
        for name, value in self._asked.items():
            if before.get(name) != value:
                found = f"a comparison with {name} {before.get(name)!r} is there, not {value!r}"
                if name == "content":
                    found = "a comparison is there of what the files of --data and --tagged held before"
                raise InputError(f"{self.path}: {found}; choose another --out, or delete it")

    def begin(self) -> None:
        """Make the folder, and note down what was asked for."""
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self._settings, self._asked)

    def has(self, name: str) -> bool:
        """Whether a part has ended."""
        return self._place(name).exists()

    def read(self, name: str) -> Kept:
        """A part that has ended."""
        place = self._place(name)
        try:
            return Kept(**read_json(place))
        except TypeError:
            raise CheckpointError(f"{place}: not a part of a comparison; delete it, and it is measured again") from None

    def found(self) -> dict[str, Found]:
        """The numbers of all parts that have ended, by name."""
        names = [place.stem for place in sorted(self.path.glob("*.json")) if place != self._settings]
        return {name: self.read(name).found for name in names}

    def keep(self, name: str, kept: Kept) -> None:
        """Write down a part."""
        with self._writing():
            write_json(self._place(name), asdict(kept))

    def figure(self, name: str) -> Path:
        """Where the figure of a part is, or will be."""
        return self.path / f"{name}.png"

    def write_report(self, page: str) -> None:
        """The page of all parts."""
        with self._writing():
            write_text(self.setting.report, page)

    def _place(self, name: str) -> Path:
        return self.path / f"{name}.json"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error}); make room, or choose another --out"
            raise InputError(f"{self.path}: {problem}") from None
