"""The check of an ONNX export: ONNX Runtime runs it on sample inputs beside regard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.export.comparison import Comparison
from regard.export.encoder_outputs import compute_samples, select_tokens
from regard.export.source_model import SourceModel


def open_session(path: Path, n_threads: int = 0) -> Any:
    """Return a session of ONNX Runtime on the CPU, with that many threads; 0 is all cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare_onnx(path: Path, source: SourceModel, comparison: Comparison) -> None:
    """Compare every output, all samples in one padded batch, and the shortest one, of a single token, alone."""
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    samples = compute_samples(source)
    feeds = {node.name: samples.feeds[node.name] for node in session.get_inputs()}
    for name, theirs in zip(names, session.run(None, feeds), strict=True):
        ours = samples.outputs[name]
        comparison.check_values(name, ours, select_tokens(ours, theirs))
    shortest = min(range(len(samples.lengths)), key=samples.lengths.__getitem__)
    alone = {name: rows[shortest : shortest + 1, : samples.lengths[shortest]] for name, rows in feeds.items()}
    for name, theirs in zip(names, session.run(None, alone), strict=True):
        comparison.check_values(name, samples.outputs[name][shortest : shortest + 1], theirs)
