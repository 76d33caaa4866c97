"""`regard.load`: the model in a directory or of a name, as an object of the class for its task."""

from __future__ import annotations

from pathlib import Path

from regard.api.classifier import Classifier
from regard.api.language_model import LanguageModel
from regard.api.masked_language_model import MaskedLanguageModel
from regard.api.question_answerer import QuestionAnswerer
from regard.api.sentence_encoder import SentenceEncoder
from regard.api.tagger import Tagger
from regard.api.translator import Translator
from regard.api.word_vectors import WordVectors
from regard.data.word_vectors import read_word_vectors
from regard.errors import InputError
from regard.runs.device import select_device
from regard.runs.model_loading import open_model
from regard.runs.precision import check_precision, set_precision
from regard.runs.ready_made import find_ready_made
from regard.tasks.vectors import WordVectorTask

NetworkModel = (
    Translator | LanguageModel | MaskedLanguageModel | Classifier | Tagger | QuestionAnswerer | SentenceEncoder
)
LoadedModel = NetworkModel | WordVectors

MODEL_CLASSES: dict[str, type[NetworkModel]] = {
    "translate": Translator,
    "pretrain": MaskedLanguageModel,
    "classify": Classifier,
    "tag": Tagger,
    "qa": QuestionAnswerer,
    "embed": SentenceEncoder,
    "lm": LanguageModel,
}
"""The class of a model by the name of its task."""


def load(path: str | Path, *, device: str = "auto", precision: str = "auto") -> LoadedModel:
    """Load a trained model, ready for use.

    The class of the result follows from the task the model was trained for: `Translator`, `LanguageModel`,
    `MaskedLanguageModel`, `Classifier`, `Tagger`, `QuestionAnswerer`, `SentenceEncoder` or `WordVectors`. Where the
    kind is known beforehand, `regard.Translator.load(path)` and its siblings give type checkers and editors the exact
    class, and refuse a model of another kind.

    Args:
        path: A run directory, as `regard train` writes it, the name of a ready-made model (`regard models` lists them),
            a Hugging Face model directory, or a file of word vectors in word2vec's or GloVe's format.
        device: "auto" (a GPU where one is available), "cpu", "cuda", "cuda:1" (the second GPU) or "mps".
        precision: "auto" (float32), "float32", "bfloat16" or, on a CPU, "int8".

    Returns:
        The model, on the device, in evaluation mode.

    Raises:
        regard.RegardError: The directory holds no model that can be read, or the device or precision is not available.

    Example:
        >>> model = regard.load("runs/en-fr")
        >>> model.translate("I am good")[0].text
    """
    torch_device = select_device(device)
    chosen = check_precision(precision, torch_device)
    if Path(path).is_file():
        _refuse_precision(path, precision)
        return WordVectors(Path(path), read_word_vectors(path))
    ready_made = find_ready_made(path)
    path = Path(path) if ready_made is None else ready_made.path
    config, task, network = open_model(path)
    if isinstance(task, WordVectorTask):
        _refuse_precision(path, precision)
        return WordVectors(path, task.word_vectors(network), config)
    assert config.task.name in MODEL_CLASSES, f"the task '{config.task.name}' needs a line in MODEL_CLASSES"
    reached = set_precision(network, chosen)
    model = MODEL_CLASSES[config.task.name](path, config, task, network, torch_device)
    model.precision, model.ready_made = reached, ready_made
    if ready_made is not None and isinstance(model, Translator):
        model.to = ready_made.target_lang
    return model


def _refuse_precision(path: str | Path, precision: str) -> None:
    if precision not in ("auto", "float32"):
        raise InputError(f"{path}: word vectors, a table of float32 numbers; leave the precision '{precision}' out")
