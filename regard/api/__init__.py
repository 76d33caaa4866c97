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

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.api.encoders import Classifier, MaskedLanguageModel, Tagger
from regard.api.language_model import LanguageModel
from regard.api.model import Model
from regard.api.translator import Translator
from regard.errors import InputError
from regard.runs.device import select_device
from regard.runs.model_loading import open_model

if TYPE_CHECKING:
    from regard.api.training_run import TrainingRun, train

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


def __getattr__(name: str) -> Any:
    """Import training only when it is asked for: using a model needs none of it."""
    if name in ("TrainingRun", "train"):
        return getattr(importlib.import_module("regard.api.training_run"), name)
    raise AttributeError(f"module 'regard.api' has no attribute '{name}'")
