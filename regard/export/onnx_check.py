"""The check of an ONNX export: ONNX Runtime runs it on sample inputs beside regard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from regard.export.comparison import Comparison
from regard.export.encoder_outputs import Outputs, encoder_outputs, language_model_outputs, sentence_embeddings
from regard.export.onnx_encoder import IDS, MASK, SENTENCE, TYPES
from regard.export.source_model import SourceModel
from regard.text.special_tokens import SpecialTokenTemplate

Feeds = dict[str, np.ndarray]


def open_session(path: Path, n_threads: int = 0) -> Any:
    """Return a session of ONNX Runtime on the CPU, with so many threads; 0 is all cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare_onnx(path: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare every output, all samples in one padded batch and the first one alone."""
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    lengths, feeds, expected = _samples(source)
    feeds = {node.name: feeds[node.name] for node in session.get_inputs()}
    alone = {name: values[:1, : lengths[0]] for name, values in feeds.items()}
    for batch, n in ((feeds, len(lengths)), (alone, 1)):
        for name, values in zip(names, session.run(None, batch), strict=True):
            ours = expected[name][:n]
            theirs = [value if _is_of_text(own, value) else value[: len(own)] for own, value in zip(ours, values, strict=True)]
            comparison.check_values(name, ours, theirs)


def _is_of_text(own: Any, value: np.ndarray) -> bool:
    return tuple(own.shape) == value.shape


def _samples(source: SourceModel) -> tuple[list[int], Feeds, Outputs]:
    """Return the lengths of the samples, the inputs of the graph and the outputs of regard."""
    if source.is_language_model:
        texts = source.sample_texts(source.task.tokenizers.source, 0)
        return list(map(len, texts)), pad_inputs(texts, [len(ids) for ids in texts]), language_model_outputs(source.network, texts)
    inputs = source.sample_inputs()
    pad_id = SpecialTokenTemplate.from_tokenizer(source.task.tokenizers.source).pad_id
    expected = encoder_outputs(source.network, inputs, pad_id)
    table = source.task_table
    if table["name"] == "pretrain":
        expected[SENTENCE] = sentence_embeddings(
            source.network, inputs, pad_id, table["pooling"], normalised=table["normalised"]
        )
    ids = [each.ids for each in inputs]
    return list(map(len, ids)), pad_inputs(ids, [each.token_type_boundary for each in inputs], pad_id), expected


def pad_inputs(texts: list[list[int]], boundaries: list[int], pad_id: int = 0) -> Feeds:
    """Return the arrays of texts with their special tokens; tokens from the boundary on have type 1."""
    width = max(map(len, texts))
    ids = np.full((len(texts), width), pad_id, dtype=np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, (text, boundary) in enumerate(zip(texts, boundaries, strict=True)):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
        types[row, boundary : len(text)] = 1
    return {IDS: ids, MASK: mask, TYPES: types}
