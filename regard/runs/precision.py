"""Precisions: the one named by ``--precision``, the check of a device for it, and the conversion of a model to it.

    auto        float32, on every device
    float32     the numbers that were trained
    bfloat16    half of the memory; on a GPU also faster
    int8        linear layers in int8 (nn/quantization.py); on a CPU only

The error of int8 is measured on random tokens whenever a model is converted to it:

    relative error = ||y_int8 - y_float32|| / ||y_float32||

over the logits of a translation or language model, less the mean of each row, which no probability depends on, and over
the hidden states of an encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Rows, SegmentedRows, sentences_to_rows
from regard.errors import InputError
from regard.models.interfaces import EncoderModel, Seq2SeqModel
from regard.nn.kernels.dispatch import int8_kernels
from regard.nn.quantization import quantize
from regard.progress import warn

PRECISIONS = ("auto", "float32", "bfloat16", "int8")
"""Values of ``--precision``."""

LARGE_ERROR = 0.1
"""A relative error above which a warning says so."""

N_SAMPLES, SAMPLE_TOKENS = 4, 12
"""The random texts on which the error is measured, and their length."""


@dataclass(frozen=True)
class Precision:
    """The precision of a loaded model, and for int8 its relative error on random tokens."""

    name: str = "float32"
    relative_error: float | None = None

    def describe(self) -> dict[str, object]:
        """Return the text that `regard info` prints."""
        error = {} if self.relative_error is None else {"relative_error": round(self.relative_error, 5)}
        return {"precision": self.name, **error}


def check_precision(name: str, device: torch.device) -> str:
    """Return the precision that ``--precision`` names; refuse one that the device does not have."""
    if name not in PRECISIONS:
        raise InputError(f"precision '{name}' is unknown; accepted: {', '.join(PRECISIONS)}")
    if name == "int8" and device.type != "cpu":
        raise InputError(f"precision 'int8' is for CPUs, not for {device}: pass --device cpu, or --precision bfloat16")
    if name == "bfloat16" and device.type == "cpu" and not _cpu_has_bfloat16():
        raise InputError("precision 'bfloat16': this processor does not support it; accepted here: float32, int8")
    return "float32" if name == "auto" else name


def _cpu_has_bfloat16() -> bool:
    """Return True if the processor has instructions that are fast enough for bfloat16."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def set_precision(network: Any, name: str) -> Precision:
    """Bring a float32 model on a CPU into a precision of `check_precision`, in place."""
    if name == "bfloat16":
        network.to(torch.bfloat16)
    return Precision(name, _quantize(network) if name == "int8" else None)


def _quantize(network: Any) -> float:
    """Convert a model to int8 and return the relative error; warn if it is large."""
    exact = _sample_outputs(network)
    if not quantize(network, keep=[network.heads] if isinstance(network, EncoderModel) else []):
        raise InputError("precision 'int8': this model has no linear layers that it could make faster; use float32")
    if not int8_kernels():
        warn(
            "torch has no int8 matrix multiplication for this machine: --precision int8 saves memory here, but no time"
        )
    error = float((_sample_outputs(network) - exact).norm() / exact.norm())
    if not error <= LARGE_ERROR:
        warn(f"int8 changes the outputs by {error:.0%} on random tokens; compare its results with those of float32")
    return error


@torch.inference_mode()
def _sample_outputs(network: Any) -> Tensor:
    """Return the outputs for random tokens: centred logits, or the hidden states of an encoder."""
    generator = torch.Generator().manual_seed(0)
    size = (N_SAMPLES, min(SAMPLE_TOKENS, network.config.n_positions))

    def draw(embedding: Any) -> Rows:
        ids = torch.randint(embedding.tokens.num_embeddings, size, generator=generator)
        return sentences_to_rows(ids.tolist(), pad_id=0)

    if isinstance(network, EncoderModel):
        rows = draw(network.embedding)
        segmented = SegmentedRows(rows.ids, rows.segment, rows.position, torch.zeros_like(rows.ids))
        return torch.as_tensor(network(segmented))
    if isinstance(network, Seq2SeqModel):
        logits: Tensor = network(draw(network.source_embedding), draw(network.target_embedding))
    else:
        logits = network(draw(network.embedding))
    return logits - logits.mean(-1, keepdim=True)
