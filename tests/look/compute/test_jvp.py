"""Two ways to push directions through a model: they agree with each other, and with small steps really taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_targets import translator
from torch import Tensor
from torch.testing import assert_close

from regard.look.compute.jvp import autodiff_pushforward, linearised_pushforward, record_inputs, replace_inputs
from regard.look.compute.look_target import LookTarget
from regard.nn import record

SHAPES = [
    {"norm": "post", "activation": "relu", "positions": "sinusoidal"},
    {"norm": "pre", "activation": "gated-gelu", "positions": "rotary"},
    {"norm": "post", "activation": "gelu", "positions": "relative"},
    {"norm": "pre", "activation": "gated-silu", "positions": "relative-values"},
]


def by_small_steps(subject: LookTarget, stack: str, side: str, directions: Tensor) -> Tensor:
    """The model run a little to either side of the text."""
    inputs, step = record_inputs(subject)[side], 1e-5
    names = [f"{stack}.{layer}.out" for layer in range(subject.n_layers(stack))]

    @torch.no_grad()
    def outs(change: Tensor) -> Tensor:
        with record(subject.model, *names) as recorded, replace_inputs(subject, {side: inputs + change}):
            subject.run_layers()
        return torch.stack([recorded[name][0] for name in names])

    moved = [(outs(step * each) - outs(-step * each)) / (2 * step) for each in directions]
    return torch.stack(moved).square().sum(-1)


def directions(subject: LookTarget, side: str, count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, *record_inputs(subject)[side].shape[1:], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["positions"])
@pytest.mark.parametrize(("stack", "side"), [("encoder", "encoder"), ("decoder", "encoder"), ("decoder", "decoder")])
def test_both_pushforwards_equal_the_derivative(shape: dict[str, object], stack: str, side: str) -> None:
    subject = translator(5, 4, **shape)
    sent = directions(subject, side)
    expected = by_small_steps(subject, stack, side, sent)
    assert_close(autodiff_pushforward(subject, stack)({side: sent}), expected, rtol=1e-6, atol=1e-7)
    assert_close(linearised_pushforward(subject, stack, torch.float64)({side: sent}), expected, rtol=1e-6, atol=1e-7)


@settings(max_examples=12, deadline=None)
@given(
    source=st.integers(1, 6),
    target=st.integers(1, 5),
    heads=st.sampled_from([1, 2, 4]),
    layers=st.integers(1, 3),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 9),
)
def test_pushforwards_agree_for_any_shape(
    source: int, target: int, heads: int, layers: int, shape: dict[str, object], seed: int
) -> None:
    subject = translator(source, target, seed, n_heads=heads, n_layers=layers, n_decoder_layers=layers, **shape)
    sent = {side: directions(subject, side) for side in subject.sides}
    found = linearised_pushforward(subject, "decoder", torch.float64)(sent)
    assert_close(found, autodiff_pushforward(subject, "decoder")(sent), rtol=1e-8, atol=1e-10)


def test_zero_tangents_give_zero() -> None:
    subject = translator(5, 4)
    sent = {"decoder": directions(subject, "decoder")}
    assert_close(
        linearised_pushforward(subject, "decoder", torch.float64)(sent),
        linearised_pushforward(subject, "decoder", torch.float64)(
            {**sent, "encoder": 0 * directions(subject, "encoder")}
        ),
    )
