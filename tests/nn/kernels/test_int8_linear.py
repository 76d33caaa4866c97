"""Products of int8: every kernel against the plain definition, number for number, row by row."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.nn import kernels
from regard.nn.kernels import dispatch, int8_packing, int8_weight, plain
from regard.nn.kernels.int8_weight import INT8_MAX, Int8Weight, quantize_weight

KERNELS = {kernel.name: kernel for kernel in dispatch.int8_kernels()}
SHAPES = [(1, 5, 3), (3, 16, 16), (7, 33, 17), (32, 64, 1000), (2, 2048, 48), (1, 1500, 40)]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A number halfway between two whole ones may be rounded either way; the same numbers every time."""
    torch.manual_seed(0)


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Iterator[dispatch.Kernel]:
    with torch.inference_mode():
        yield KERNELS[request.param]


def packed(kernel: dispatch.Kernel, weight: Int8Weight) -> Int8Weight:
    assert kernel.pack is not None
    return kernel.pack(weight)


def by_hand(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> list[list[float]]:
    """Return the definition in whole numbers, one product after another."""
    out = []
    for row in x.tolist():
        scale = max(map(abs, row)) / INT8_MAX
        q = [round(value / scale) for value in row]
        sums = [sum(a * b for a, b in zip(q, column, strict=True)) for column in weight.unpacked_values().tolist()]
        out.append([scale * s * total for s, total in zip(weight.scale.tolist(), sums, strict=True)])
    return out if bias is None else [[a + b for a, b in zip(row, bias.tolist(), strict=True)] for row in out]


@pytest.mark.parametrize("biased", [True, False])
@torch.no_grad()
def test_the_plain_definition_is_what_is_computed_by_hand(biased: bool) -> None:
    x, weight, bias = torch.randn(4, 11), quantize_weight(torch.randn(6, 11)), torch.randn(6) if biased else None
    assert_close(plain.int8_linear(x, weight, bias), torch.tensor(by_hand(x, weight, bias)), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_long_sums_are_exact() -> None:
    weight = int8_weight.largest_weight()
    values = torch.full((8, 9000), INT8_MAX, dtype=torch.int8)
    long = Int8Weight((8, 9000), weight.scale[:8], torch.ones(8), values)
    assert_close(plain.int8_linear(torch.ones(1, 9000), long, None), torch.full((1, 8), 127.0 * 127 * 9000))


def test_weights_are_quantised_by_output() -> None:
    weight = torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [1e-3, 5e-4, 0.0]])
    quantized = quantize_weight(weight)
    assert quantized.unpacked_values().tolist() == [[64, -127, 32], [0, 0, 0], [127, 64, 0]]
    error = (quantized.unpacked_values() * quantized.scale[:, None] - weight).abs().amax(1)
    assert (error <= 0.5001 * quantized.scale).all()


@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_kernels_equal_the_definition(kernel: dispatch.Kernel, rows: int, width: int, out: int, biased: bool) -> None:
    weight, bias = quantize_weight(torch.randn(out, width)), torch.randn(out) if biased else None
    x = torch.randn(rows, width) * torch.logspace(-3, 3, rows)[:, None]
    assert_close(kernel.run(x, packed(kernel, weight), bias), plain.int8_linear(x, weight, bias), rtol=0, atol=0)


def test_large_columns_of_inputs_do_not_cost_the_others_their_precision(kernel: dispatch.Kernel) -> None:
    weight, bias, x = torch.randn(24, 64), torch.randn(24), torch.randn(50, 64)
    x[:, 5] *= 40
    plainly, balanced = quantize_weight(weight), quantize_weight(weight, x.abs().amax(0))
    exact = x @ weight.T + bias
    errors = [(kernel.run(x, packed(kernel, each), bias) - exact).norm() for each in (plainly, balanced)]
    assert errors[1] < errors[0] / 2
    found = kernel.run(x, packed(kernel, balanced), bias)
    assert_close(found, plain.int8_linear(x, balanced, bias), rtol=0, atol=0)
    some = torch.tensor([3, 0, 17])
    chosen = packed(kernel, balanced.select(some, balanced.unpacked_values()))
    assert_close(kernel.run(x, chosen, bias[some]), found[:, some], rtol=0, atol=0)


def test_kernels_take_any_shape_of_rows(kernel: dispatch.Kernel) -> None:
    weight, bias = quantize_weight(torch.randn(24, 16)), torch.randn(24)
    x = torch.randn(5, 16, 2, 3).permute(2, 3, 0, 1)
    expected = plain.int8_linear(x, weight, bias)
    assert expected.shape == (2, 3, 5, 24)
    assert_close(kernel.run(x, packed(kernel, weight), bias), expected, rtol=0, atol=0)
    assert kernel.run(x[:, :, :0], packed(kernel, weight), bias).shape == (2, 3, 0, 24)


@pytest.mark.parametrize("rows", [2, 9, 33])
def test_a_row_is_the_same_in_any_batch(kernel: dispatch.Kernel, rows: int) -> None:
    """Other rows are larger by powers of ten: with one scale for all of them the small ones would be lost."""
    weight, bias = packed(kernel, quantize_weight(torch.randn(40, 64))), torch.randn(40)
    x = torch.randn(rows, 64) * torch.logspace(-4, 4, rows)[:, None]
    alone = torch.cat([kernel.run(row[None], weight, bias) for row in x])
    assert_close(kernel.run(x, weight, bias), alone, rtol=0, atol=0)
    assert_close(kernel.run(x.flip(0), weight, bias).flip(0), alone, rtol=0, atol=0)


def test_rows_of_zeros_and_of_no_numbers(kernel: dispatch.Kernel) -> None:
    weight, bias = packed(kernel, quantize_weight(torch.randn(40, 8))), torch.randn(40)
    x = torch.randn(4, 8)
    x[1], x[2, 3], x[3, 0] = 0.0, math.nan, math.inf
    out = kernel.run(x, weight, bias)
    assert_close(out[1], bias, rtol=0, atol=0)
    assert_close(out[:1], kernel.run(x[:1], weight, bias), rtol=0, atol=0)
    assert not out[2].isfinite().any()
    assert not out[3].isfinite().any()


def test_a_packed_weight_still_has_its_values(kernel: dispatch.Kernel) -> None:
    weight = quantize_weight(torch.randn(40, 24))
    again = packed(kernel, weight)
    assert_close(again.unpacked_values(), weight.values, rtol=0, atol=0)
    with kernels.disabled():
        x = torch.randn(3, 24)
        assert_close(dispatch.int8_linear(x, again), plain.int8_linear(x, weight, None), rtol=0, atol=0)


def test_a_kernel_that_saturates_is_not_used() -> None:
    def saturating(x: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
        return plain.int8_linear(x, weight, bias).clamp(max=1000)

    weight = int8_weight.largest_weight()
    assert int8_weight.sums_are_exact(plain.int8_linear, weight)
    assert not int8_weight.sums_are_exact(saturating, weight)


def test_the_fastest_kernel_is_measured_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def named(name: str) -> dispatch.Kernel:
        def pack(weight: Int8Weight) -> Int8Weight:
            return Int8Weight(weight.shape, weight.scale, weight.step, weight.values, packed=name)

        return dispatch.Kernel(name, lambda *_: True, plain.int8_linear, lambda *_: True, "", pack)

    def measure(kernel: dispatch.Kernel, _: Int8Weight) -> float:
        measured.append(kernel.name)
        return {"slow": 2.0, "fast": 1.0}[kernel.name]

    monkeypatch.setattr(int8_packing, "int8_kernels", lambda: [named("slow"), named("fast")])
    monkeypatch.setattr(int8_packing, "_measure", measure)
    monkeypatch.setattr(int8_packing, "_fastest", {})
    weight = quantize_weight(torch.randn(4, 8))
    assert [int8_packing.pack_int8_weight(weight).packed for _ in range(3)] == ["fast"] * 3
    assert measured == ["slow", "fast"]
    monkeypatch.setattr(int8_packing, "int8_kernels", list)
    assert int8_packing.pack_int8_weight(weight) is weight


def test_measuring_takes_every_kernel_of_this_machine() -> None:
    weight = quantize_weight(torch.randn(48, 32))
    assert all(0 < int8_packing._measure(kernel, weight) < 1 for kernel in KERNELS.values())
