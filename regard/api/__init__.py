"""The Python interface: `load` a model and use it, `train` one from a recipe.

    model = regard.load("runs/en-fr")
    best = model.translate("I am good")[0]          # .text .score .tokens .token_scores .alignment
    regard.load("runs/bert").fill("the [MASK] exceeded the speed limit")
    regard.load("runs/books").generate("Once upon a time", temperature=0.8)[0].text
    regard.load("runs/vectors").nearest("king - man + woman")[0].word
    run = regard.train("recipe.toml", out="runs/x")
    for event in run: print(event.kind, event.step, event.values)
    regard.load(run.path)
    run = regard.distill("runs/x", "texts.en", out="runs/student")

One file per kind of model. Every name is imported when it is first used, so that a model is loaded without the code
that trains one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api.classifier import Classifier
    from regard.api.distillation import distill
    from regard.api.language_model import LanguageModel
    from regard.api.loading import LoadedModel, load
    from regard.api.masked_language_model import MaskedLanguageModel
    from regard.api.model import Model
    from regard.api.question_answerer import QuestionAnswerer
    from regard.api.sentence_encoder import SentenceEncoder
    from regard.api.tagger import Tagger
    from regard.api.text_encoder import TextEncoder
    from regard.api.training_run import TrainingRun, train
    from regard.api.translator import Translator
    from regard.api.word_vectors import WordVectors

__all__ = [
    "Classifier",
    "LanguageModel",
    "LoadedModel",
    "MaskedLanguageModel",
    "Model",
    "QuestionAnswerer",
    "SentenceEncoder",
    "Tagger",
    "TextEncoder",
    "TrainingRun",
    "Translator",
    "WordVectors",
    "distill",
    "load",
    "train",
]

_MODULES = {
    "Classifier": "classifier",
    "LanguageModel": "language_model",
    "LoadedModel": "loading",
    "MaskedLanguageModel": "masked_language_model",
    "Model": "model",
    "QuestionAnswerer": "question_answerer",
    "SentenceEncoder": "sentence_encoder",
    "Tagger": "tagger",
    "TextEncoder": "text_encoder",
    "TrainingRun": "training_run",
    "Translator": "translator",
    "WordVectors": "word_vectors",
    "distill": "distillation",
    "load": "loading",
    "train": "training_run",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"regard.api.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'regard.api' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
