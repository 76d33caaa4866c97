"""`regard.train`: a training run as an object to iterate over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from regard import config
from regard.runs.device import select_device
from regard.training.loop import Trainer, TrainingEvent
from regard.training.prepare import PreparedRun, prepare_run


def train(
    recipe: str | Path | config.Tables,
    *,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
    resume: bool = False,
    where: str = "recipe",
) -> TrainingRun:
    """Prepare a run. Iterating over it trains and yields events; asking for its `path` trains to the end."""
    if isinstance(recipe, dict):
        tables = recipe
    else:
        tables, where = config.read(Path(recipe)), str(recipe)
    tables = config.override(tables, list(overrides))
    place = Path(out) if out is not None else next_run_directory(Path("runs"), tables)
    return TrainingRun(prepare_run(tables, place, select_device(device), where=where, resume=resume))


def next_run_directory(parent: Path, tables: config.Tables) -> Path:
    """The first of ``runs/translate-1``, ``runs/translate-2``, ... that is not there yet."""
    name = tables.get("task", {}).get("name", "run")
    return next(path for n in count(1) if not (path := parent / f"{name}-{n}").exists())


class TrainingRun:
    """A training run: iterate over it to train and to see what happens."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.trainer = Trainer(prepared)
        self._started = False

    def __iter__(self) -> Iterator[TrainingEvent]:
        self._started = True
        return self.trainer.train()

    @property
    def path(self) -> Path:
        """The run directory; trains to the end first if nobody has iterated over the run."""
        if not self._started:
            for _ in self:
                pass
        return self.prepared.directory.path
