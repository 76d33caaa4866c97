"""The compared layers: operation counts against torch's counter, and sequential matrix multiplications."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.compare.layers import COMPLEXITY, LAYERS, OPERATION_COUNTS, count_operations, count_sequential_matmuls


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("length", "width"), [(5, 64), (32, 128)])
def test_operation_counts_equal_those_of_torch(layer: str, length: int, width: int) -> None:
    module = LAYERS[layer](width).to("meta")
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(torch.zeros(1, length, width, device="meta"))
    assert counter.get_total_flops() == count_operations(layer, length, width)


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_preserve_the_shape(layer: str) -> None:
    x = torch.randn(1, 7, 64)
    assert LAYERS[layer](64)(x).shape == x.shape
    assert layer in OPERATION_COUNTS
    assert layer in COMPLEXITY


def test_attention_only_equals_the_definition() -> None:
    x = torch.randn(1, 6, 128, dtype=torch.float64)
    heads = [x[0, :, start : start + 64] for start in (0, 64)]
    expected = torch.cat([(head @ head.T / 8).softmax(-1) @ head for head in heads], -1)
    torch.testing.assert_close(LAYERS["attention alone"](128)(x)[0], expected)


def test_sequential_matmuls_are_n_for_recurrence_and_constant_for_attention() -> None:
    lengths = (1, 3, 9)
    assert [count_sequential_matmuls("attention alone", n) for n in lengths] == [2, 2, 2]
    assert [count_sequential_matmuls("self-attention", n) for n in lengths] == [4, 4, 4]
    assert [count_sequential_matmuls("encoder layer", n) for n in lengths] == [6, 6, 6]
    assert [count_sequential_matmuls("LSTM", n) for n in lengths] == list(lengths)
