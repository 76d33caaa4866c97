"""Export as a run directory that holds the model alone, its weights in 8 or 16 bits if wanted: to hand it on.

Config, vocabulary, labels and metrics come along; the state of training, its log and snapshots do not, nor where it was
started. Every verb takes the result as it takes the run itself, except to resume the training.
"""

from __future__ import annotations

from pathlib import Path

from regard.disk import write_json_with_checksum
from regard.export.comparison import Comparison
from regard.export.export_format import ExportFormat
from regard.export.source_model import SourceModel
from regard.models.quantized_weights import WEIGHT_TYPES, quantize_weights
from regard.models.weights import collect_weights, write_tensors
from regard.runs.model_loading import describe_origin, describe_teacher
from regard.runs.precision import sample_outputs
from regard.runs.run_directory import DISTILLED_FROM, IMPORTED_FROM, RunDirectory


class RegardFormat(ExportFormat):
    """Models of every task and architecture; regard itself is the engine."""

    name, engine, quantizations, knows_tasks = "regard", "regard", WEIGHT_TYPES, True

    def check_expressible(self, source: SourceModel) -> None:
        return

    def write(self, directory: Path, source: SourceModel, quantization: str) -> None:
        run, weights = RunDirectory(directory), collect_weights(source.model)
        source.task.save(directory)
        write_tensors(run.weights_path, quantize_weights(weights, quantization) if quantization else weights)
        original = RunDirectory(source.path)
        if metrics := original.read_metrics():
            write_json_with_checksum(run.metrics_path, metrics)
        origin = describe_origin(source.path, source.run_config)
        notes = {IMPORTED_FROM: origin, DISTILLED_FROM: describe_teacher(source.path)}
        run.write_config(source.run_config, {name: text for name, text in notes.items() if text})

    def compare(self, directory: Path, source: SourceModel, comparison: Comparison) -> None:
        _, _, stored = RunDirectory(directory).load()
        ours, theirs = (collect_weights(model) for model in (source.model, stored))
        comparison.check_values("weights", ours.values(), [theirs[name] for name in ours])
        comparison.check_values("outputs", [sample_outputs(source.model)], [sample_outputs(stored)])

    def usage(self, directory_name: str, source: SourceModel) -> str:
        heads = getattr(source.model, "heads", {})
        fills = source.task_table["name"] == "pretrain" and "masked" in heads
        return USAGE.format(directory=directory_name, call=CALLS["fill" if fills else source.task_table["name"]])


CALLS = {
    "translate": 'model.translate("I am good")[0].text',
    "lm": 'model.generate("Once upon a time", max_tokens=20)[0].text',
    "fill": 'model.fill("the [MASK] exceeded the speed limit")[0]',
    "pretrain": 'model.embed("I am good")',
    "embed": 'model.match("I am good", "I am fine")',
    "classify": 'model.classify("I am good")',
    "tag": 'model.tag("I am good")',
    "qa": 'model.answer("What is red?", "The cat is red.")',
}
"""A call of the model of each task."""

USAGE = """\
import regard

model = regard.load("{directory}")
print({call})
"""
