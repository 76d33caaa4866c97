"""The files of a directory of theirs: weights in one file of tensors or in several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from regard.disk import read_json
from regard.errors import CheckpointError
from regard.models.weights import read_tensors

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def read_weights(directory: Path, architecture: str) -> dict[str, Tensor]:
    """All tensors of a directory; never from a pickle."""
    if (directory / WEIGHTS).exists():
        return read_tensors(directory / WEIGHTS)[0]
    if (directory / INDEX).exists():
        return _read_parts(directory)
    for name in PICKLED:
        if (directory / name).exists():
            convert = (
                f"m = transformers.{architecture}.from_pretrained('{directory}'); m.save_pretrained('{directory}')"
            )
            raise CheckpointError(
                f"{directory}: has only pickled weights ({name}), which can run any code and are never read; where you "
                f'trust them, convert them: python -c "import transformers; {convert}"'
            )
    raise CheckpointError(f"{directory}: has no {WEIGHTS}; was the download complete?")


def _read_parts(directory: Path) -> dict[str, Tensor]:
    """The tensors of several files, each in the one that the index names."""
    index = directory / INDEX
    files: Any = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(_is_name(file) for file in files.values()):
        raise CheckpointError(f"{index}: damaged; expected a weight_map with a file name for each tensor")
    parts = {file: read_tensors(directory / file)[0] for file in sorted(set(files.values()))}
    for name, file in files.items():
        if name not in parts[file]:
            raise CheckpointError(f"{directory / file}: lacks the tensor '{name}', which {INDEX} puts there")
    return {name: parts[file][name] for name, file in files.items()}


def _is_name(file: object) -> bool:
    return isinstance(file, str) and file == Path(file).name
