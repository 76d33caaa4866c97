"""`regard.load`: the model in a directory, as an object of the class for its task."""

from __future__ import annotations

from pathlib import Path

from regard.api.classifier import Classifier
from regard.api.language_model import LanguageModel
from regard.api.masked_language_model import MaskedLanguageModel
from regard.api.question_answerer import QuestionAnswerer
from regard.api.tagger import Tagger
from regard.api.translator import Translator
from regard.runs.device import select_device
from regard.runs.model_loading import open_model

LoadedModel = Translator | LanguageModel | MaskedLanguageModel | Classifier | Tagger | QuestionAnswerer

MODEL_CLASSES: dict[str, type[LoadedModel]] = {
    "translate": Translator,
    "pretrain": MaskedLanguageModel,
    "classify": Classifier,
    "tag": Tagger,
    "qa": QuestionAnswerer,
    "lm": LanguageModel,
}
"""The class of a model by the name of its task."""


def load(path: str | Path, *, device: str = "auto") -> LoadedModel:
    """Load a trained model, ready for use.

    The class of the result follows from the task the model was trained for: `Translator`, `LanguageModel`,
    `MaskedLanguageModel`, `Classifier`, `Tagger` or `QuestionAnswerer`. Where the kind is known beforehand,
    `regard.Translator.load(path)` and its siblings give type checkers and editors the exact class, and refuse a model
    of another kind.

    Args:
        path: A run directory, as `regard train` writes it, or a Hugging Face model directory.
        device: "auto" (a GPU where one is available), "cpu", "cuda", "cuda:1" (the second GPU) or "mps".

    Returns:
        The model, on the device, in evaluation mode.

    Raises:
        regard.RegardError: The directory holds no model that can be read, or the device is not available.

    Example:
        >>> model = regard.load("runs/en-fr")
        >>> model.translate("I am good")[0].text
    """
    config, task, network = open_model(Path(path))
    assert config.task.name in MODEL_CLASSES, f"the task '{config.task.name}' needs a line in MODEL_CLASSES"
    return MODEL_CLASSES[config.task.name](Path(path), config, task, network, select_device(device))
