"""Weights that two files share: left out of one, taken from the other, which must be the same file as then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.models.quantized_weights import quantize_weights
from regard.models.shared_weights import describe_base
from regard.models.weights import (
    collect_weights,
    load_model,
    read_metadata,
    read_tensors,
    share_weights,
    write_tensors,
)


def build(n_outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(64, n_outputs))


def stored(model: nn.Module, path: Path) -> dict[str, Tensor]:
    path.parent.mkdir(exist_ok=True)
    write_tensors(path, quantize_weights(collect_weights(model), "int8"))
    return collect_weights(load_model(build, path))


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "tuned" / "model.safetensors", tmp_path / "base" / "model.safetensors"


def test_a_model_loads_as_if_it_held_all_of_its_weights(paths: tuple[Path, Path]) -> None:
    path, base_path = paths
    base, tuned = build(), build()
    tuned[0].load_state_dict(base[0].state_dict())  # type: ignore[index]
    stored(base, base_path)
    whole = stored(tuned, path)
    size = path.stat().st_size
    assert share_weights(path, base_path) == 3  # values, scales, bias
    assert path.stat().st_size < size - 64 * 128 + 1000
    loaded = collect_weights(load_model(build, path))
    assert all(torch.equal(loaded[name], whole[name]) for name in whole)
    path.parent.parent.rename(path.parent.parent.with_name("moved"))
    moved = path.parent.parent.with_name("moved") / "tuned" / path.name
    assert all(torch.equal(weight, whole[name]) for name, weight in collect_weights(load_model(build, moved)).items())


def test_a_file_that_shares_nothing_stays_as_it_is(paths: tuple[Path, Path]) -> None:
    path, base_path = paths
    for each in paths:
        stored(build(), each)
    content = path.read_bytes()
    assert share_weights(path, base_path) == 0
    assert path.read_bytes() == content


def test_the_base_must_be_there_and_the_same(paths: tuple[Path, Path]) -> None:
    path, base_path = paths
    model = build()
    for each in paths:
        stored(model, each)
    share_weights(path, base_path)
    assert set(read_tensors(path)[0]) == set()
    content = base_path.read_bytes()
    base_path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"base/model\.safetensors: damaged"):
        load_model(build, path)
    stored(build(), base_path)
    with pytest.raises(CheckpointError, match="which is not the file that it was then; restore both"):
        load_model(build, path)
    base_path.unlink()
    with pytest.raises(
        CheckpointError, match=r"tuned/model\.safetensors: needs the weights that it shares with .*base"
    ):
        load_model(build, path)


@pytest.mark.parametrize("metadata", [{"base": "x"}, {"base": "x", "shared": "["}, {"base": "x", "shared": "3"}])
def test_damaged_references(metadata: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, collect_weights(build()), metadata)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged"):
        load_model(build, path)


def test_tensors_that_a_base_lacks_are_named(tmp_path: Path) -> None:
    base_path, path = tmp_path / "base.safetensors", tmp_path / "model.safetensors"
    write_tensors(base_path, {"x": torch.ones(2)})
    reference = describe_base(path, base_path, read_metadata(base_path)["checksum"], ["0.weight"])
    write_tensors(path, {}, reference)
    with pytest.raises(CheckpointError, match="lacks the tensor"):
        load_model(build, path)
