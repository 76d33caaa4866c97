"""Model cards: a header that the Hub reads, with languages, licence and scores, and how the export was checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from sources import WORDPIECE, encoder, language_model, save, translator

from regard.data.labels import Labels
from regard.export import export_model
from regard.export.source_model import SourceModel
from regard.tasks.classify import ClassificationTask, ClassifyConfig
from regard.tasks.pretrain import PretrainConfig, PretrainingTask

METRICS = {
    "best": {"bleu": 31.5, "step": 40, "averaged": 2},
    "steps": 50,
    "final": {"examples": 9, "bleu": 30.25, "chrf": 50.5},
}


def read_card(source: SourceModel, folder: Path, to: str, metrics: dict[str, Any] | None = None, **options: Any) -> Any:
    """Export a model and return its card as the Hub reads it."""
    run = save(source, folder / "run", metrics)
    return ModelCard.load(export_model(run, folder / "there", to, **options) / "README.md")


def test_translator_with_scores(tmp_path: Path) -> None:
    languages = {"source_lang": "en", "target_lang": "fr"}
    card = read_card(translator(task=languages), tmp_path, "ctranslate2", METRICS, licence="cc-by-4.0")
    header = card.data.to_dict()
    assert header["language"] == ["en", "fr"]
    assert header["license"] == "cc-by-4.0"
    assert header["library_name"] == "ctranslate2"
    assert header["pipeline_tag"] == "translation"
    assert header["metrics"] == ["bleu", "chrf"]
    results = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert results == {"bleu": 30.25, "chrf": 50.5}
    assert "translation from en to fr" in card.text
    assert "| bleu | 30.25 |" in card.text
    assert "CTranslate2 ran it on random texts beside regard. Largest differences: log-probabilities" in card.text


@pytest.mark.parametrize(
    ("make", "to", "tag"),
    [
        (lambda: language_model(), "onnx", "text-generation"),
        (lambda: encoder(PretrainingTask(PretrainConfig(length=32), WORDPIECE)), "onnx", "fill-mask"),
        (
            lambda: encoder(PretrainingTask(PretrainConfig(length=32, objective="none"), WORDPIECE)),
            "ctranslate2",
            "feature-extraction",
        ),
        (
            lambda: encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, Labels(("no", "yes")))),
            "hf",
            "text-classification",
        ),
    ],
)
def test_task_without_scores(make: Any, to: str, tag: str, tmp_path: Path) -> None:
    card = read_card(make(), tmp_path, to)
    header = card.data.to_dict()
    assert header["pipeline_tag"] == tag
    assert header["license"] == "unknown"
    assert not {"metrics", "model-index", "language"} & header.keys()


def test_error_of_quantization_is_told(tmp_path: Path) -> None:
    source = encoder(ClassificationTask(ClassifyConfig(), WORDPIECE, Labels(("no", "yes"))), d_model=64, d_ff=128)
    card = read_card(source, tmp_path, "onnx", quantization="int8")
    assert "- weights: int8\n" in card.text
    assert "Error by int8 weights, relative to the deviation of the values: logits " in card.text
    assert "labels, in the order of the logits: no, yes" in card.text
