"""Weights that several models share: a file leaves out the tensors that another file has too, and names that file.

A model that was fine-tuned with its first layers frozen (`train.freeze`) has these from the model it started from. Its
metadata name the other file, relative to its own directory, the checksum of that file, and the tensors taken from it:

    sentiment-en/model.safetensors     its last layers and its head      base = "../bert-en/model.safetensors"
    bert-en/model.safetensors          all others

So a package holds them once, and each model loads as if it held all of its weights; the two move together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.disk import CHECKSUM_KEY, RESTORE, damage_error
from regard.errors import CheckpointError

BASE_KEY, BASE_CHECKSUM_KEY, SHARED_KEY = "base", "base checksum", "shared"


def find_shared(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that a base has with the same bits."""
    return [name for name in tensors if name in base and _are_same(tensors[name], base[name])]


def _are_same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.dtype == other.dtype and tensor.shape == other.shape and torch.equal(tensor, other)


def describe_base(path: Path, base_path: Path, base_checksum: str, shared: list[str]) -> dict[str, str]:
    """Return the metadata that name the tensors taken from a base."""
    relative = Path(os.path.relpath(base_path.resolve(), path.parent.resolve())).as_posix()
    return {BASE_KEY: relative, BASE_CHECKSUM_KEY: base_checksum, SHARED_KEY: json.dumps(shared)}


def read_reference(path: Path, metadata: Mapping[str, str]) -> tuple[Path, list[str]] | None:
    """Return the path of the base that a file names, and the tensors to take from it; None if it names none."""
    if BASE_KEY not in metadata:
        return None
    try:
        base_path, names = path.parent / metadata[BASE_KEY], list(map(str, json.loads(metadata[SHARED_KEY])))
    except (ValueError, TypeError, KeyError):
        raise damage_error(path, RESTORE) from None
    if not base_path.exists():
        problem = f"{path}: needs the weights that it shares with {base_path}, which does not exist"
        raise CheckpointError(f"{problem}; keep both directories together")
    return base_path, names


def check_base(path: Path, metadata: Mapping[str, str], base_path: Path, base_metadata: Mapping[str, str]) -> None:
    """Refuse a base that is not the file that the weights were shared with."""
    if base_metadata.get(CHECKSUM_KEY) != metadata.get(BASE_CHECKSUM_KEY):
        problem = f"{path}: shares weights with {base_path}, which is not the file that it was then"
        raise CheckpointError(f"{problem}; restore both from one copy")
