"""`regard.train`: a training run as an object to iterate over; beside distillation.py the only file of api/ that
imports training/.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
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
    """Prepare a training run; iterate over it to train, or read its `path`, which trains to the end.

    Args:
        recipe: The path of a TOML recipe, or its tables as a dict of dicts. Only task.name and data.train are
            required; vocabulary, model size, batch and steps are chosen from the data and the device.
        out: The run directory to create; by default the next free one of runs/translate-1, runs/translate-2, ...
        overrides: Settings that override the recipe, as in ["train.steps=1000", "model.preset=small"].
        device: "auto" (a GPU where one is available), "cpu", "cuda", "cuda:1" (the second GPU) or "mps".
        resume: Continue the run in `out`; the result is that of a run that was never interrupted.
        where: The name of the recipe in error messages, for a dict.

    Returns:
        A `TrainingRun`: iterating over it yields a `TrainingEvent` with `kind` ("progress", "log", "valid", "save",
        "interrupted", "average", "end"), `step` and `values` for everything that happens; `path` is the run
        directory, for `regard.load`.

    Example:
        >>> run = regard.train(
        ...     {"task": {"name": "translate"}, "data": {"train": ["train.en", "train.fr"]}, "train": {"steps": 2000}},
        ...     out="runs/en-fr",
        ... )
        >>> for event in run:
        ...     if event.kind == "valid":
        ...         print(event.step, event.values["bleu"])
        >>> regard.load(run.path).translate("I am good")[0].text
    """
    if isinstance(recipe, dict):
        tables = recipe
    else:
        tables, where = config.read(Path(recipe)), str(recipe)
    tables = config.override(tables, list(overrides))
    directory = Path(out) if out is not None else next_run_directory(Path("runs"), tables)
    return TrainingRun(prepare_run(tables, directory, select_device(device), where=where, resume=resume))


def next_run_directory(parent: Path, tables: config.Tables) -> Path:
    """Return the first of ``runs/translate-1``, ``runs/translate-2``, ... that does not exist yet."""
    name = tables.get("task", {}).get("name", "run")
    return next(path for n in count(1) if not (path := parent / f"{name}-{n}").exists())


class TrainingRun:
    """A training run: iterate over it to train and to receive a `TrainingEvent` for everything that happens."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.prepared = prepared
        self.trainer = Trainer(prepared)
        self._events: Generator[TrainingEvent, None, None] | None = None

    def __repr__(self) -> str:
        config, step = self.prepared.config, self.trainer.progress.step
        facts = f"{config.task.name}, step {step:,} of {config.train.steps:,}"
        return f"TrainingRun({str(self.prepared.directory.path)!r}, {facts})"

    def __iter__(self) -> Generator[TrainingEvent, None, None]:
        self._events = events = self.trainer.train()
        return events

    def close(self) -> None:
        """Stop the run and release its directory, so that it can be resumed elsewhere from its last checkpoint."""
        if self._events is not None:
            self._events.close()
        self.prepared.directory.lock.release()

    @property
    def path(self) -> Path:
        """The run directory; reading it trains to the end if the run was never iterated over."""
        if self._events is None:
            for _ in self:
                pass
        return self.prepared.directory.path
