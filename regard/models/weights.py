"""Weights as safetensors files, read and written whole, never unpickled.

A weights file of a run holds exactly the parameters of one model, under their names. Run directories
(runs/run_directory.py), checkpoints (training/checkpoint.py) and Hugging Face directories (models/exchange) use this
file. Version 0.1 had other names for some weights: `LEGACY_NAMES` is the only place that knows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.disk import write_atomically
from regard.errors import CheckpointError

LEGACY_NAMES = {
    "around_attention": "attention_residual",
    "around_cross": "cross_attention_residual",
    "around_feed_forward": "feed_forward_residual",
    "feed_forward.inner": "feed_forward.up_projection",
    "feed_forward.outer": "feed_forward.down_projection",
    "embedding.parts": "embedding.token_types",
    "positions.vectors": "positions.embedding",
    "scorer.form": "scorer.bilinear",
    "ahead": "forward_rnn",
    "back": "backward_rnn",
    "recurrence": "rnn",
    "own": "state_projection",
    "masked.words": "masked.output_embedding",
}
"""Module names of version 0.1 and those of today, as whole parts of a dotted path; no name of today is a key."""

_LEGACY_NAME = re.compile(rf"(?<![^.])({'|'.join(map(re.escape, LEGACY_NAMES))})(?=\.)")


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file whose tensors must be exactly the parameters of the model."""
    tensors, _ = read_model_tensors(path)
    parameters = dict(model.named_parameters())
    for name in parameters.keys() - tensors.keys():
        raise CheckpointError(f"{path}: lacks the tensor '{name}'; is it from another model?")
    for name in tensors.keys() - parameters.keys():
        raise CheckpointError(f"{path}: holds a tensor '{name}' this model does not have; is it from another model?")
    with torch.no_grad():
        for name, weight in parameters.items():
            if weight.shape != tensors[name].shape:
                shapes = f"{tuple(tensors[name].shape)}, expected {tuple(weight.shape)}"
                raise CheckpointError(f"{path}: '{name}' has shape {shapes}; is it from another model?")
            weight.copy_(tensors[name])


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model by name, shared ones once, on the CPU."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters()}


def read_model_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file of ours, under today's names whichever version wrote it."""
    tensors, metadata = read_tensors(path)
    return {modernise_name(name): tensor for name, tensor in tensors.items()}, metadata


def modernise_name(name: str) -> str:
    """Return the name that a weight, or a tensor named after one (``exp_avg.encoder...``), has today."""
    return _LEGACY_NAME.sub(lambda match: LEGACY_NAMES[match[0]], name)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    with _open_tensor_file(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file without reading its tensors."""
    with _open_tensor_file(path) as file:
        return file.metadata() or {}


@contextmanager
def _open_tensor_file(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise CheckpointError(f"{path}: no such file; was training stopped before its first checkpoint?")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or not a safetensors file ({error}); restore it from a copy") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""

    def write(aside: Path) -> None:
        try:
            save_file(dict(tensors), aside, metadata)
        except SafetensorError as error:  # it wraps the system's error: a full disk must look like one
            raise OSError(str(error)) from None
        aside.chmod(0o644)

    write_atomically(path, write)
