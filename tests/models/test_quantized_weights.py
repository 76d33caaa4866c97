"""Weights stored in 8 and 16 bits: what they become, how exactly they come back, and files that hold others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentences import tiny_config
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.models.quantized_weights import quantize_weights, relative_error
from regard.models.seq2seq import TransformerSeq2Seq
from regard.models.weights import collect_weights, load_model, load_weights, write_tensors
from regard.nn.kernels.int8_weight import quantize_weight

N_TOKENS = 300


def build() -> nn.Module:
    return TransformerSeq2Seq(tiny_config(positions="learned"), N_TOKENS, N_TOKENS, joint=True)


def stored_and_loaded(weights: dict[str, Tensor], weight_type: str, path: Path) -> dict[str, Tensor]:
    write_tensors(path, quantize_weights(weights, weight_type))
    return collect_weights(load_model(build, path))


@pytest.mark.parametrize(("weight_type", "least", "most"), [("int8", 1e-3, 0.02), ("float16", 1e-5, 1e-3)])
def test_a_model_comes_back(weight_type: str, least: float, most: float, tmp_path: Path) -> None:
    weights = collect_weights(build())
    loaded = stored_and_loaded(weights, weight_type, tmp_path / "model.safetensors")
    assert least < relative_error(loaded, weights) < most


def test_what_came_back_is_stored_as_the_same_bits(tmp_path: Path) -> None:
    weights = collect_weights(build())
    stored = quantize_weights(weights, "int8")
    loaded = stored_and_loaded(weights, "int8", tmp_path / "first.safetensors")
    again = quantize_weights(loaded, "int8")
    assert again.keys() == stored.keys()
    write_tensors(tmp_path / "second.safetensors", again)
    first, second = ((tmp_path / f"{name}.safetensors").read_bytes() for name in ("first", "second"))
    assert first == second


@pytest.mark.parametrize("magnitude", [1e-30, 1e-3, 1.0, 3.7e4])
def test_int8_of_int8_is_itself(magnitude: float) -> None:
    """So `--precision int8` of a model that is stored in int8 computes with the stored values."""
    first = quantize_weight(torch.randn(400, 33) * magnitude)
    second = quantize_weight(first.unpacked_values() * first.scale[:, None])
    assert torch.equal(second.unpacked_values(), first.unpacked_values())
    assert torch.equal(second.scale, first.scale)


def test_norms_and_positions_stay_in_16_bits() -> None:
    weights = {"a.weight": torch.randn(64, 64), "positions.embedding.weight": torch.randn(64, 64)}
    weights |= {"norm.weight": torch.randn(64), "small.weight": torch.randn(2, 64)}
    types = {name: tensor.dtype for name, tensor in quantize_weights(weights, "int8").items()}
    half = dict.fromkeys(("positions.embedding.weight", "norm.weight", "small.weight"), torch.float16)
    assert types == {"a.weight": torch.int8, "a.weight.scale": torch.float32, **half}


def test_what_8_or_16_bits_cannot_hold_is_stored_in_more() -> None:
    outlier = torch.eye(256) * 50 + torch.randn(256, 256)
    weights = {
        "outlier": outlier,
        "huge": outlier * 1e6,
        "bias": torch.tensor([1e6, 1.0]),
        "tiny": torch.full((3,), 1e-9),
    }
    stored = quantize_weights(weights, "int8")
    assert {name: tensor.dtype for name, tensor in stored.items()} == {
        "outlier": torch.float16,
        "huge": torch.float32,
        "bias": torch.float32,
        "tiny": torch.float32,
    }


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"weight": torch.zeros(2, 3, dtype=torch.int8)}, r"torch\.int8, expected"),
        ({"weight.scale": torch.ones(3)}, r"torch\.int8 with a scale of the shape \(3,\), expected"),
        ({"weight.scale": torch.ones(2, dtype=torch.int32)}, r"torch\.int8 with a scale"),
        ({"weight": torch.zeros(2, 3), "weight.scale": torch.ones(2)}, r"torch\.float32 with a scale"),
        ({"weight": torch.zeros(2, 3, dtype=torch.int32), "weight.scale": torch.ones(2)}, r"torch\.int32 with a scale"),
    ],
)
def test_what_is_no_weight_is_refused(tensors: dict[str, Tensor], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"weight": torch.zeros(2, 3, dtype=torch.int8)} | tensors)
    with pytest.raises(CheckpointError, match=rf"'weight' holds {problem}.* or int8 with a scale for each row"):
        load_weights(nn.Linear(3, 2, bias=False), path)
