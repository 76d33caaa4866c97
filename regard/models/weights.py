"""The weights of a model as files: safetensors, read and written whole, never unpickled.

A file of ours holds exactly the parameters of one model, under their names. Run directories (runs/recipe.py),
checkpoints (training/checkpoint.py) and the directories of other libraries (models/exchange) are read and written here.
"""

from __future__ import annotations

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


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a model from a file whose tensors must be exactly its own."""
    found, _ = read_tensors(path)
    wanted = dict(model.named_parameters())
    for name in wanted.keys() - found.keys():
        raise CheckpointError(f"{path}: lacks the tensor '{name}'; is it from another model?")
    for name in found.keys() - wanted.keys():
        raise CheckpointError(f"{path}: holds a tensor '{name}' this model does not have; is it from another model?")
    with torch.no_grad():
        for name, weight in wanted.items():
            if weight.shape != found[name].shape:
                shapes = f"{tuple(found[name].shape)}, expected {tuple(weight.shape)}"
                raise CheckpointError(f"{path}: '{name}' has shape {shapes}; is it from another model?")
            weight.copy_(found[name])


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights by name, each once, in main memory."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters()}


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header texts of a safetensors file."""
    with _open_tensor_file(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def read_metadata(path: Path) -> dict[str, str]:
    """The header texts alone."""
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
    """Write a safetensors file whole or not at all."""

    def write(aside: Path) -> None:
        try:
            save_file(dict(tensors), aside, metadata)
        except SafetensorError as error:  # it wraps the system's error: a full disk must look like one
            raise OSError(str(error)) from None
        aside.chmod(0o644)

    write_atomically(path, write)
