"""Export to ONNX: `model.onnx`, an encoder with its heads or a language model, with `tokenizer.json` beside it.

int8 makes the weights of matrix multiplications and of the embeddings 8-bit numbers, and quantizes the inputs of the
multiplications when the model runs (ONNX Runtime's dynamic quantization).
"""

from __future__ import annotations

import logging
from pathlib import Path

from regard.disk import write_json
from regard.export.comparison import Comparison
from regard.export.export_format import ExportFormat
from regard.export.onnx_check import compare_onnx
from regard.export.onnx_encoder import SPAN_LOGITS, check_expressible, input_names, write_onnx_model
from regard.export.source_model import SourceModel
from regard.models import exchange

MODEL_FILE, CONFIG_FILE = "model.onnx", "config.json"
"""The model, and the labels of its logits, by the keys of Hugging Face."""


class OnnxFormat(ExportFormat):
    """Encoders with their heads, and language models."""

    name, engine, modules = "onnx", "ONNX Runtime", ("onnx", "onnxruntime")
    quantizations = ("int8",)

    def check_expressible(self, source: SourceModel) -> None:
        check_expressible(source.model)

    def write(self, directory: Path, source: SourceModel, quantization: str) -> None:
        table = source.task_table
        embeds_texts = "normalised" in table  # a model that embeds texts
        path = directory / ("float32.onnx" if quantization else MODEL_FILE)
        write_onnx_model(
            path,
            source.model,
            table["pooling"] if embeds_texts else "",
            normalised=embeds_texts and table["normalised"],
        )
        if quantization:
            _quantize(path, directory / MODEL_FILE)
            path.unlink()
        exchange.write_tokenizer_files(directory, source.model, table, source.task.tokenizers)
        if labels := exchange.label_values(table, source.task.labels.names):
            write_json(directory / CONFIG_FILE, labels)

    def compare(self, directory: Path, source: SourceModel, comparison: Comparison) -> None:
        compare_onnx(directory / MODEL_FILE, source, comparison)

    def usage(self, directory_name: str, source: SourceModel) -> str:
        types = ', "token_type_ids": [encoded.type_ids]' if "token_type_ids" in input_names(source.model) else ""
        is_span = source.task_table["name"] == "qa"
        text = '"What is red?", "The cat is red."' if is_span else '"I am good"'
        names = ", ".join(SPAN_LOGITS) if is_span else "outputs"
        outputs = "outputs, *_" if not is_span else names
        return USAGE.format(directory=directory_name, types=types, text=text, names=names, outputs=outputs)


def _quantize(path: Path, out: Path) -> None:
    """Write the model with 8-bit weights, each column of a matrix with a scale of its own."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises to preprocess, which folds constants; there are none here
    try:
        quantize_dynamic(str(path), str(out), per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    finally:
        logger.setLevel(level)


USAGE = """\
import onnxruntime
from tokenizers import Tokenizer

directory = "{directory}"
tokenizer = Tokenizer.from_file(f"{{directory}}/tokenizer.json")
session = onnxruntime.InferenceSession(f"{{directory}}/model.onnx")

encoded = tokenizer.encode({text})
inputs = {{"input_ids": [encoded.ids], "attention_mask": [encoded.attention_mask]{types}}}
{outputs} = session.run(None, inputs)
print({names})
"""
