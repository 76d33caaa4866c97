"""Weights as safetensors files, read and written whole, never unpickled.

A weights file of a run holds exactly the parameters of one model, under their names. Run directories
(runs/run_directory.py), checkpoints (training/checkpoint.py) and Hugging Face directories (models/exchange) use this
file. The metadata of a file written here has the checksum of its tensors and of the other metadata, which is checked
when it is read. Version 0.1 had other names for some weights: `LEGACY_NAMES` is the only place that knows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.disk import (
    CHECKSUM_KEY,
    CHECKSUM_TYPE,
    RESTORE,
    check_checksum,
    check_path_is_utf8,
    compute_checksum,
    write_atomically,
)
from regard.errors import CheckpointError
from regard.models.construction import shapes_only, uninitialised
from regard.text.fingerprints import digest_bytes

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


def load_model(build: Callable[[], nn.Module], path: Path, *, fix: str = RESTORE) -> nn.Module:
    """Return the model that `build` makes with the weights of a file; nothing is allocated before the shapes agree."""
    with shapes_only():
        _check_parameters(build(), _read_shapes(path, fix), path)
    with uninitialised():
        model = build()
    load_weights(model, path, fix=fix)
    return model


def load_weights(model: nn.Module, path: Path, *, fix: str = RESTORE) -> None:
    """Load a file whose tensors must be exactly the parameters of the model; `fix` ends a message about damage."""
    tensors, _ = read_model_tensors(path, fix=fix)
    _check_parameters(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not tensors[name].is_floating_point():
                problem = f"'{name}' holds {tensors[name].dtype}, expected floating-point numbers"
                raise CheckpointError(f"{path}: {problem}; is it from another model?")
            weight.copy_(tensors[name])


def _check_parameters(model: nn.Module, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Refuse a file whose tensors are not exactly the parameters of the model."""
    parameters = dict(model.named_parameters())
    for name in parameters.keys() - shapes.keys():
        raise CheckpointError(f"{path}: lacks the tensor '{name}'; is it from another model?")
    for name in shapes.keys() - parameters.keys():
        raise CheckpointError(f"{path}: holds a tensor '{name}' this model does not have; is it from another model?")
    for name, weight in parameters.items():
        if tuple(weight.shape) != shapes[name]:
            mismatch = f"{shapes[name]}, expected {tuple(weight.shape)}"
            raise CheckpointError(f"{path}: '{name}' has shape {mismatch}; is it from another model?")


def _read_shapes(path: Path, fix: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's tensors, from its header alone."""
    with open_tensor_file(path, fix) as file:
        return {modernise_name(name): tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model by name, shared ones once, on the CPU."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters()}


def digest_weights(model: nn.Module) -> str:
    """Return a digest of the weights of a model, which does not depend on the file that they are loaded from."""
    return digest_bytes(bytes(part) for part in _tensor_bytes(collect_weights(model), {}))


def read_model_tensors(path: Path, *, fix: str = RESTORE) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file of ours, under today's names whichever version wrote it."""
    tensors, metadata = read_tensors(path, fix=fix)
    return {modernise_name(name): tensor for name, tensor in tensors.items()}, metadata


def modernise_name(name: str) -> str:
    """Return the name that a weight, or a tensor named after one (``exp_avg.encoder...``), has today."""
    return _LEGACY_NAME.sub(lambda match: LEGACY_NAMES[match[0]], name)


def read_tensors(path: Path, *, fix: str = RESTORE) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file; other libraries and version 0.1 write no checksum."""
    with open_tensor_file(path, fix) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata: dict[str, str] = file.metadata() or {}
    if CHECKSUM_KEY in metadata or any(value.startswith(CHECKSUM_TYPE) for value in metadata.values()):
        expected = metadata.pop(CHECKSUM_KEY, "")
        check_checksum(path, _tensor_bytes(tensors, metadata), expected, fix=fix)
    return tensors, metadata


def _tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the entire content of a file of tensors, in an order that does not depend on the file."""
    yield json.dumps(metadata, sort_keys=True).encode()
    for name, tensor in sorted(tensors.items()):
        yield json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode()
        yield tensor.reshape(-1).view(torch.uint8).numpy().data


@contextmanager
def open_tensor_file(path: Path, fix: str = RESTORE) -> Iterator[Any]:
    """Open a safetensors file, whose tensors are read one by one."""
    check_path_is_utf8(path, CheckpointError)
    try:
        if not path.exists():
            raise CheckpointError(f"{path}: no such file; was training stopped before its first checkpoint?")
        if not path.is_file():  # a pipe may never end
            raise CheckpointError(f"{path}: not a file; {fix}")
        with safe_open(path, framework="pt") as file:
            yield file
    except MemoryError:
        raise CheckpointError(f"{path}: {path.stat().st_size:,} bytes do not fit into memory") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged or not a safetensors file ({error}); {fix}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically, with its checksum."""
    described = dict(metadata or {})
    described[CHECKSUM_KEY] = compute_checksum(_tensor_bytes(tensors, described))

    def write(aside: Path) -> None:
        try:
            save_file(dict(tensors), aside, described)
        except SafetensorError as error:  # it wraps the system's error: a full disk must look like one
            raise OSError(str(error)) from None
        aside.chmod(0o644)

    write_atomically(path, write)
