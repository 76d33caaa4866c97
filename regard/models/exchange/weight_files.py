"""The weights files of a Hugging Face directory: one safetensors file or several shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from regard.disk import read_json
from regard.errors import CheckpointError
from regard.models.weights import read_tensors

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def read_weights(directory: Path, architecture: str) -> dict[str, Tensor]:
    """Return all tensors of a directory; pickled weights are refused."""
    if (directory / WEIGHTS_FILE).exists():
        return read_tensors(directory / WEIGHTS_FILE)[0]
    if (directory / INDEX_FILE).exists():
        return _read_shards(directory)
    for name in PICKLE_FILES:
        if (directory / name).exists():
            convert = (
                f"m = transformers.{architecture}.from_pretrained('{directory}'); m.save_pretrained('{directory}')"
            )
            raise CheckpointError(
                f"{directory}: has only pickled weights ({name}), which can run any code and are never read; where you "
                f'trust them, convert them: python -c "import transformers; {convert}"'
            )
    raise CheckpointError(f"{directory}: has no {WEIGHTS_FILE}; was the download complete?")


def _read_shards(directory: Path) -> dict[str, Tensor]:
    """Return the tensors of several files, each from the one that the index names."""
    index = directory / INDEX_FILE
    files: Any = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(_is_file_name(file) for file in files.values()):
        raise CheckpointError(f"{index}: damaged; expected a weight_map with a file name for each tensor")
    shards = {file: read_tensors(directory / file)[0] for file in sorted(set(files.values()))}
    for name, file in files.items():
        if name not in shards[file]:
            raise CheckpointError(f"{directory / file}: lacks the tensor '{name}', which {INDEX_FILE} assigns to it")
    return {name: shards[file][name] for name, file in files.items()}


def _is_file_name(file: object) -> bool:
    return isinstance(file, str) and file == Path(file).name
