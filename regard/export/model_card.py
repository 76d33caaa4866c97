"""The model card of an export, README.md: the Hub's YAML header, where the model comes from, its scores, how to use it.

The header is JSON after each key, which is YAML too. Scores are those of metrics.json, on the validation data of the
training.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import __version__
from regard.disk import json_text, write_text
from regard.export.comparison import Comparison
from regard.export.source_model import SourceModel
from regard.runs.run_directory import RunDirectory

CARD_FILE = "README.md"
UNKNOWN_LICENCE = "unknown"

PIPELINE_TAGS = {
    "translate": "translation",
    "lm": "text-generation",
    "pretrain": "fill-mask",
    "classify": "text-classification",
    "tag": "token-classification",
    "qa": "question-answering",
    "embed": "sentence-similarity",
}
"""The Hub's name of what the model of each task does."""

LIBRARIES = {"hf": "transformers", "ctranslate2": "ctranslate2", "onnx": "onnx"}

NOT_METRICS = ("step", "averaged", "examples")


def write_model_card(
    directory: Path, source: SourceModel, export_format: Any, comparison: Comparison, out_name: str, licence: str
) -> None:
    """Write README.md."""
    scores = read_scores(source)
    header = "".join(f"{key}: {json_text(value)}\n" for key, value in _header(source, export_format, scores, licence))
    body = "\n".join(_body(source, export_format, comparison, out_name, scores))
    write_text(directory / CARD_FILE, f"---\n{header}---\n\n{body}")


def read_scores(source: SourceModel) -> dict[str, float]:
    """Return the scores of the validation data by name; those of all of it, where training scored a sample."""
    metrics = RunDirectory(source.path).read_metrics() if RunDirectory(source.path).exists() else {}
    best: dict[str, Any] = {**metrics.get("best", {}), **metrics.get("final", {})}
    return {name: value for name, value in best.items() if name not in NOT_METRICS and isinstance(value, int | float)}


def pipeline_tag(source: SourceModel) -> str:
    """Return the Hub's name of the model's task."""
    table = source.task_table
    if table["name"] == "pretrain" and "masked" not in source.network.heads:
        return "feature-extraction"
    return PIPELINE_TAGS[table["name"]]


def _header(
    source: SourceModel, export_format: Any, scores: dict[str, float], licence: str
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the header with their values."""
    languages = _languages(source)
    if languages:
        yield "language", languages
    yield "license", licence
    yield "library_name", LIBRARIES[export_format.name]
    yield "pipeline_tag", pipeline_tag(source)
    yield "tags", ["regard", export_format.name]
    if scores:
        yield "metrics", list(scores)
        metrics = [{"type": name, "name": name, "value": value} for name, value in scores.items()]
        task = {"type": pipeline_tag(source)}
        dataset = {"type": "validation", "name": "validation data of the training"}
        yield (
            "model-index",
            [
                {
                    "name": source.path.name or "model",
                    "results": [{"task": task, "dataset": dataset, "metrics": metrics}],
                }
            ],
        )


def _languages(source: SourceModel) -> list[str]:
    table = source.task_table
    return [language for key in ("source_lang", "target_lang") if (language := table.get(key))]


def _body(
    source: SourceModel, export_format: Any, comparison: Comparison, out_name: str, scores: dict[str, float]
) -> Iterator[str]:
    languages = " to ".join(_languages(source))
    kind = pipeline_tag(source)
    yield f"# {out_name}\n"
    yield f"A model for {kind}{f' from {languages}' if languages else ''}, exported by regard {__version__}.\n"
    yield "\n".join(f"- {line}" for line in _facts(source, comparison)) + "\n"
    if scores:
        yield "| score on the validation data | value |\n|---|---|"
        yield "\n".join(f"| {name} | {value:.4g} |" for name, value in scores.items()) + "\n"
    yield f"## How to use it\n\n```python\n{export_format.usage(out_name, source)}```\n"
    yield "## How it was checked\n"
    yield _describe_check(export_format, comparison) + "\n"


def _facts(source: SourceModel, comparison: Comparison) -> Iterator[str]:
    config = source.network.config
    n_weights = sum(weight.numel() for weight in source.model.parameters())
    yield f"architecture: {config.architecture}, {n_weights:,} weights, width {config.d_model}"
    yield f"weights: {comparison.quantization or 'float32'}"
    yield f"vocabulary: {len(source.task.tokenizers.target):,} tokens, in tokenizer.json"
    if not source.task.tokenizers.is_joint:
        yield "tokenizer.json is that of the source, tokenizer.target.json that of the target"
    yield f"length: at most {config.n_positions:,} tokens, special tokens included"
    if names := source.task.labels.names:
        yield f"labels, in the order of the logits: {', '.join(names)}"


def _describe_check(export_format: Any, comparison: Comparison) -> str:
    if not comparison.largest:
        return f"Not at all: {export_format.engine} was not installed."
    values = (
        f"{export_format.engine} ran it on random texts beside regard. Largest differences: {comparison.summary()}."
    )
    if comparison.errors:
        errors = ", ".join(f"{name} {value:.1%}" for name, value in comparison.errors.items())
        values += f" Error by {comparison.quantization} weights, relative to the deviation of the values: {errors}."
    return values
