"""Combinations of layers against their plain definitions, and the layers they need."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import ConfigError
from regard.models.config import TransformerEncoderConfig
from regard.models.layer_combination import ScalarMix, build_layer_combination
from regard.models.recurrent.config import StaticEncoderConfig

N_LAYERS, D = 5, 4
CONFIG = TransformerEncoderConfig(preset="", d_model=D, n_layers=N_LAYERS, n_heads=2, d_ff=8, dropout=0.0)
STATES = torch.randn(N_LAYERS + 1, 2, 3, D, generator=torch.Generator().manual_seed(0))


def test_last_four_layers_are_summed_or_concatenated() -> None:
    summed, joined = (build_layer_combination(choice, CONFIG) for choice in ("last4-sum", "last4-concat"))
    assert summed is not None
    assert joined is not None
    assert (summed.width, joined.width) == (D, 4 * D)
    assert list(summed.parameters()) == list(joined.parameters()) == []
    for row in range(2):
        for token in range(3):
            vectors = [STATES[layer, row, token] for layer in (2, 3, 4, 5)]
            torch.testing.assert_close(summed(list(STATES))[row, token], sum(vectors[1:], vectors[0]))
            assert joined(list(STATES))[row, token].tolist() == [x for vector in vectors for x in vector.tolist()]


def test_mix_is_a_scaled_softmax_weighted_sum_of_embeddings_and_layers() -> None:
    mix = build_layer_combination("mix", CONFIG)
    assert isinstance(mix, ScalarMix)
    torch.testing.assert_close(mix(list(STATES)), STATES.mean(0))  # as it begins
    with torch.no_grad():
        mix.logits.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, -0.5]))
        mix.scale.fill_(1.7)
    exponentials = [math.exp(logit) for logit in mix.logits.tolist()]
    expected = sum(1.7 * e / sum(exponentials) * state.double() for e, state in zip(exponentials, STATES, strict=True))
    torch.testing.assert_close(mix(list(STATES)).double(), expected)


def test_last_layer_needs_no_module() -> None:
    assert build_layer_combination("last", CONFIG) is None


@pytest.mark.parametrize("choice", ["last4-sum", "last4-concat"])
def test_more_layers_than_the_model_has_are_refused(choice: str) -> None:
    shallow = TransformerEncoderConfig(preset="", d_model=D, n_layers=3, n_heads=2, d_ff=8, dropout=0.0)
    problem = rf'task.layers = "{choice}" needs a model of at least 4 layers, this one has 3; choose "last" or'
    with pytest.raises(ConfigError, match=problem):
        build_layer_combination(choice, shallow)


def test_static_embeddings_have_no_layers_to_mix() -> None:
    config = StaticEncoderConfig(preset="", d_model=D, dropout=0.0)
    with pytest.raises(ConfigError, match="needs a model of at least 1 layer, this one has 0"):
        build_layer_combination("mix", config)
