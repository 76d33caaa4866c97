"""Train Transformers on your own text, use them, and look inside them.

    import regard

    model = regard.load("runs/en-fr")                       # the class follows from the task of the model
    model = regard.Translator.load("runs/en-fr")            # the same; type checkers and editors know the class
    model.translate("I am good")[0].text
    run = regard.train("recipe.toml", out="runs/mine")      # see help(regard.train)
    run = regard.distill("runs/mine", "texts.en", out="runs/student")      # a smaller model that learns from it
    regard.compare_architectures(quick=True)                # the claims for the Transformer, measured here

Importing this package is cheap: torch is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api.classifier import Classifier
    from regard.api.distillation import distill
    from regard.api.language_model import LanguageModel
    from regard.api.loading import load
    from regard.api.masked_language_model import MaskedLanguageModel
    from regard.api.model import Model
    from regard.api.question_answerer import QuestionAnswerer
    from regard.api.sentence_encoder import SentenceEncoder
    from regard.api.tagger import Tagger
    from regard.api.text_encoder import TextEncoder
    from regard.api.training_run import TrainingRun, train
    from regard.api.translator import Translator
    from regard.api.word_vectors import WordVectors
    from regard.compare.comparison import Comparison, compare_architectures

__version__ = "0.1.0"
__all__ = [
    "Classifier",
    "Comparison",
    "LanguageModel",
    "MaskedLanguageModel",
    "Model",
    "QuestionAnswerer",
    "RegardError",
    "SentenceEncoder",
    "Tagger",
    "TextEncoder",
    "TrainingRun",
    "Translator",
    "WordVectors",
    "__version__",
    "compare_architectures",
    "distill",
    "load",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in ("Comparison", "compare_architectures"):
        return getattr(importlib.import_module("regard.compare.comparison"), name)
    if name in __all__:
        return getattr(importlib.import_module("regard.api"), name)
    raise AttributeError(f"module 'regard' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
