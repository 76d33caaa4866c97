"""Ready-made models: names that stand for directories of installed packages, wherever a model is asked for.

A package of models, such as `regard-models`, has a directory for each model and an index of their names, index.toml. An
entry point of the group "regard.models" makes it known. The environment variable REGARD_MODELS names directories with
an index, separated as in PATH, in place of installed packages (docs/models.md). A path that exists wins over a name.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard import config
from regard.disk import read_bytes
from regard.errors import CheckpointError, ConfigError, MissingExtra, did_you_mean
from regard.progress import warn

ENTRY_POINT_GROUP = "regard.models"
DIRECTORIES_VARIABLE = "REGARD_MODELS"
INDEX_FILE, CARD_FILE = "index.toml", "README.md"
EXTRA = "models"

_NAME = re.compile(r"[\w.-]*\w")


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """The table of a name in an index; the languages of a translator are those of its source and its target."""

    directory: str
    task: str
    licence: str
    languages: tuple[str, ...] = ()
    scores: dict = field(default_factory=dict)  # type: ignore[type-arg]  # config.check knows no dict of floats

    def __post_init__(self) -> None:
        for name, value in self.scores.items():
            if type(value) not in (int, float):
                raise ValueError(f"the score {name!r} is {value!r}, expected a number")


@dataclass(frozen=True)
class ReadyMadeModel:
    """A model by its name, in the directory of its package."""

    name: str
    path: Path
    entry: IndexEntry

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        return sum(each.stat().st_size for each in self.path.rglob("*") if each.is_file())

    @property
    def target_lang(self) -> str:
        """The language that a translator of this name translates into; "" for other models."""
        return self.entry.languages[-1] if self.entry.task == "translate" and self.entry.languages else ""

    def describe(self) -> dict[str, Any]:
        """Return what `regard models --json` says."""
        return {
            "name": self.name,
            "task": self.entry.task,
            "languages": list(self.entry.languages),
            "bytes": self.n_bytes,
            "path": str(self.path),
            "licence": self.entry.licence,
            "scores": self.entry.scores,
        }


def list_ready_made() -> dict[str, ReadyMadeModel]:
    """Return all ready-made models by name; of two with one name the first."""
    models: dict[str, ReadyMadeModel] = {}
    for path in _index_paths():
        for name, entry in _read_index(path).items():
            models.setdefault(name, ReadyMadeModel(name, path.parent / entry.directory, entry))
    return models


def are_installed() -> bool:
    """Return True if there is a package of models, or a directory in place of one."""
    return bool(_index_paths())


def locate_model(path: str | Path) -> Path:
    """Return the directory of a ready-made model, given its name; any other path as it is."""
    model = find_ready_made(path)
    return Path(path) if model is None else model.path


def find_ready_made(path: str | Path) -> ReadyMadeModel | None:
    """Return the ready-made model of a name, None for a path; refuse a name that is neither."""
    name = str(path)
    if not _NAME.fullmatch(name):
        return None
    models = list_ready_made()
    if Path(path).exists():
        if name in models:
            warn(f"{name}: taken from the current directory, where it exists; a ready-made model has that name too")
        return None
    if name not in models:
        raise _unknown_name_error(name, list(models))
    return models[name]


def _unknown_name_error(name: str, known: list[str]) -> CheckpointError:
    problem = f"{name}: no such run directory"
    if not are_installed():
        return CheckpointError(f"{problem}; `regard train` makes one; {MissingExtra('a ready-made model', EXTRA)}")
    nearest = did_you_mean(name, known) if known else "there is none"
    return CheckpointError(f"{problem}, and no ready-made model has that name; {nearest}")


def _index_paths() -> list[Path]:
    given = os.environ.get(DIRECTORIES_VARIABLE)
    if given is not None:
        return [Path(each, INDEX_FILE) for each in given.split(os.pathsep) if each]
    return [_package_directory(each) / INDEX_FILE for each in entry_points(group=ENTRY_POINT_GROUP)]


def _package_directory(entry_point: EntryPoint) -> Path:
    """Return the directory of a package, which is not imported."""
    spec = find_spec(entry_point.value)
    if spec is None or spec.origin is None:
        raise CheckpointError(
            f"{entry_point.value}: this package of models is installed, but not there; install it again"
        )
    return Path(spec.origin).parent


def _read_index(path: Path) -> dict[str, IndexEntry]:
    """Return the entries of an index by name."""
    try:
        tables = tomllib.loads(read_bytes(path).decode())
        checked = config.check(tables, dict.fromkeys(tables, IndexEntry), str(path))
        return {name: _build_entry(name, table, path) for name, table in checked.items()}
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: damaged, or not an index of models ({error}); install the package again"
        ) from None


def _build_entry(name: str, table: config.Table, path: Path) -> IndexEntry:
    if missing := config.missing_keys(IndexEntry, table):
        raise ConfigError(f"{path}: no value for {name}.{missing[0]}; install the package again")
    return config.build(IndexEntry, table)
