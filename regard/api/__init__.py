"""regard from Python: `load` a model and use it, `train` one from a recipe.

model = regard.load("runs/en-fr")
best = model.translate("I am good")[0]          # .text .score .tokens .token_scores .alignment
regard.load("runs/bert").fill("the [MASK] exceeded the speed limit")
regard.load("runs/books").generate("Once upon a time", temperature=0.8)[0].text
run = regard.train("recipe.toml", out="runs/x")
for event in run: print(event.kind, event.step, event.values)
regard.load(run.path)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from regard import config
from regard.api.encoder import Classifier, MaskedLanguageModel, Tagger
from regard.api.model import Model
from regard.api.translator import Translator
from regard.api.writer import LanguageModel
from regard.errors import InputError
from regard.train.device import select_device
from regard.train.loop import Trainer, TrainingEvent
from regard.train.prepare import PreparedRun, prepare_run
from regard.train.run import open_model

__all__ = [
    "Classifier",
    "LanguageModel",
    "MaskedLanguageModel",
    "Model",
    "Tagger",
    "TrainingRun",
    "Translator",
    "load",
    "load_as",
    "train",
]

ModelT = TypeVar("ModelT", bound=Model)

MODEL_CLASSES: dict[str, type[Model]] = {
    "translate": Translator,
    "pretrain": MaskedLanguageModel,
    "classify": Classifier,
    "tag": Tagger,
    "lm": LanguageModel,
}
"""What a model can do, by the task it was trained for."""


def load(model: str | Path, *, device: str = "auto") -> Any:
    """The model in a run directory, or in another library's, ready for use."""
    settings, task, network = open_model(Path(model))
    return MODEL_CLASSES[settings.task.name](Path(model), settings, task, network, select_device(device))


def load_as(model_class: type[ModelT], model: str | Path, device: str, verb: str) -> ModelT:
    """The model, which must be of a kind; the command line asks for it by a verb."""
    found = load(model, device=device)
    if not isinstance(found, model_class):
        task = found.task
        raise InputError(f"{model}: a model for {task.name}, which cannot {verb}; use it with: regard {task.verb}")
    return found


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


class _CallableModule(ModuleType):
    """`regard.train` is the subpackage; calling it is `train` above, whichever was imported first."""

    def __call__(self, *arguments: Any, **options: Any) -> TrainingRun:
        return train(*arguments, **options)


sys.modules["regard.train"].__class__ = _CallableModule
