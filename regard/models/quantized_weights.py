"""Weights stored in 8 or 16 bits: what a file holds of each, and the float32 weight that it stands for.

    int8       matrices, a scale for each row under the name with ".scale":   weight[n, k] = scale[n] q[n, k]
    float16    all others: norms, biases, vectors of positions

A weight that a type would change too much is stored in the next wider one. Once loaded, weights are float32;
`--precision int8` quantizes them again, with regard to their inputs (nn/kernels/int8_weight.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import CheckpointError
from regard.nn.kernels.int8_weight import quantize_weight

WEIGHT_TYPES = ("int8", "float16")
"""Types of stored weights other than float32."""

SCALE_SUFFIX = ".scale"

MIN_MATRIX_WEIGHTS = 4096
"""Weights of a matrix that is stored in int8, at least; smaller ones save nothing."""

POSITIONS = "positions"
"""Part of the names of tables of positions, which every token adds: they stay in 16 bits."""

LARGEST_ERROR = {"int8": 0.02, "float16": 1e-3}
"""The error of a weight by its type, relative to its norm, that is accepted."""


def quantize_weights(weights: Mapping[str, Tensor], weight_type: str) -> dict[str, Tensor]:
    """Return the tensors that store float32 weights in a type of `WEIGHT_TYPES`."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        stored |= _quantize(name, weight, weight_type)
    return stored


def _quantize(name: str, weight: Tensor, weight_type: str) -> dict[str, Tensor]:
    if weight_type == "int8" and _is_large_matrix(name, weight):
        quantized = quantize_weight(weight)
        tensors = {name: quantized.unpacked_values(), f"{name}{SCALE_SUFFIX}": quantized.scale}
        if relative_error(tensors, {name: weight}) <= LARGEST_ERROR["int8"]:
            return tensors
    tensors = {name: weight.half()}
    return tensors if relative_error(tensors, {name: weight}) <= LARGEST_ERROR["float16"] else {name: weight}


def _is_large_matrix(name: str, weight: Tensor) -> bool:
    return weight.ndim == 2 and weight.numel() >= MIN_MATRIX_WEIGHTS and POSITIONS not in name.split(".")


def relative_error(stored: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> float:
    """Return the norm of the change of all weights, relative to theirs; infinity where one is no longer finite."""
    pairs = [(dequantize(stored, name, Path()), weight.float()) for name, weight in weights.items()]
    change = sum(float((restored - weight).double().square().sum()) for restored, weight in pairs)
    norm = sum(float(weight.double().square().sum()) for _, weight in pairs)
    is_finite = all(bool(restored.isfinite().all()) for restored, _ in pairs)
    return float((change / max(norm, 1e-30)) ** 0.5) if is_finite else float("inf")


def weight_names(names: Iterable[str]) -> list[str]:
    """Return the names of weights among those of a file's tensors, without the scales."""
    every = set(names)
    return [name for name in every if not (name.endswith(SCALE_SUFFIX) and name.removesuffix(SCALE_SUFFIX) in every)]


def dequantize(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """Return a weight as floating-point numbers; `path` is named where it cannot be one."""
    tensor, scale = tensors[name], tensors.get(f"{name}{SCALE_SUFFIX}")
    if tensor.is_floating_point() and scale is None:
        return tensor
    is_quantized = tensor.dtype == torch.int8 and scale is not None and scale.is_floating_point()
    if not is_quantized or scale is None or scale.shape != tensor.shape[:1]:
        content = f"{tensor.dtype}{'' if scale is None else f' with a scale of the shape {tuple(scale.shape)}'}"
        problem = f"'{name}' holds {content}, expected floating-point numbers, or int8 with a scale for each row"
        raise CheckpointError(f"{path}: {problem}; is it from another model?")
    return tensor * scale.reshape(-1, *[1] * (tensor.ndim - 1))
