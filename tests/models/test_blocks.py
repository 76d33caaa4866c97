"""Modules built from the names in a config, and weight initialisation."""

from __future__ import annotations

import math
from typing import Any, get_args, get_type_hints

import pytest
import torch
from sentences import NORMS, POSITIONS, VOCABULARY, packed, tiny_config, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from regard.models import blocks
from regard.models.blocks import (
    build_decoder_layer,
    build_embedding,
    build_encoder_layer,
    build_feed_forward,
    initialise_weights,
)
from regard.models.config import (
    ActivationName,
    NormPlacement,
    PositionScheme,
    TransformerEncoderConfig,
    apply_preset,
)
from regard.models.encoder import TransformerEncoder
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import (
    AdditiveAttention,
    AttentionPooling,
    BilinearAttention,
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    PostNorm,
    PreNorm,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)


@pytest.mark.parametrize(
    ("names", "table"),
    [
        (PositionScheme, blocks.EMBEDDING_POSITIONS),
        (PositionScheme, blocks.ATTENTION_POSITIONS),
        (NormPlacement, blocks.RESIDUALS),
    ],
)
def test_every_name_of_a_config_has_a_module(names: Any, table: dict[str, Any]) -> None:
    assert set(get_args(names)) == table.keys()


def test_every_activation_of_a_config_has_a_function() -> None:
    feed_forward = {name.removeprefix("gated-") for name in get_args(ActivationName)}
    pooler = set(get_args(get_type_hints(TransformerEncoderConfig)["pooler"]))
    assert feed_forward | pooler == blocks.ACTIVATIONS.keys()


BY_NAME = {
    "sinusoidal": (SinusoidalPositions, NoPositions),
    "sinusoidal-halves": (SinusoidalPositions, NoPositions),
    "learned": (LearnedPositions, NoPositions),
    "relative": (NoPositions, RelativePositions),
    "relative-values": (NoPositions, RelativePositions),
    "rotary": (NoPositions, RotaryPositions),
    "none": (NoPositions, NoPositions),
}

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu-tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gated-gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gated-silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_position_schemes_are_attached_to_embedding_or_attention(name: str) -> None:
    config, (in_embedding, in_attention) = tiny_config(positions=name), BY_NAME[name]
    assert type(build_embedding(config, VOCABULARY).positions) is in_embedding
    assert type(build_encoder_layer(config).attention.positions) is in_attention
    layer = build_decoder_layer(config)
    assert type(layer.attention.positions) is in_attention
    assert type(layer.cross_attention.positions) is NoPositions
    if in_attention is RelativePositions:
        assert (layer.attention.positions.values is not None) == (name == "relative-values")


def test_learned_positions_have_the_configured_size() -> None:
    config = tiny_config(positions="learned", n_positions=77, first_position=2)
    assert build_embedding(config, VOCABULARY).positions.embedding.weight.shape == (79, 16)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_match_their_names(name: str) -> None:
    built = build_feed_forward(tiny_config(activation=name))
    assert type(built) is (GatedFeedForward if name.startswith("gated") else FeedForward)
    values = torch.linspace(-4, 4, 33, dtype=torch.float64)
    expected = [ACTIVATIONS[name](v) for v in values.tolist()]
    assert_close(built.activation(values).tolist(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", NORMS)
def test_norms_and_dropout_are_placed_by_name(norm: str) -> None:
    config, kind = tiny_config(norm=norm, dropout=0.25), {"post": PostNorm, "pre": PreNorm}[norm]
    arounds = [m for layer in (build_encoder_layer(config), build_decoder_layer(config)) for m in layer.modules()]
    arounds = [m for m in arounds if isinstance(m, PostNorm | PreNorm)]
    assert [type(m) for m in arounds] == [kind] * 5
    assert {m.dropout.p for m in arounds} == {0.25}
    assert type(blocks.build_final_norm(config)) is (nn.LayerNorm if norm == "pre" else nn.Identity)


def build_random_model(seed: int = 0, **changes: object) -> TransformerSeq2Seq:
    model = TransformerSeq2Seq(tiny_config(**changes), 4000, 3000, joint=False)
    initialise_weights(model, torch.Generator().manual_seed(seed))
    return model


def assert_normal(weight: Tensor, deviation: float) -> None:
    n = weight.numel()
    assert abs(weight.mean()) < 5 * deviation / math.sqrt(n)
    assert weight.std().item() == pytest.approx(deviation, rel=5 / math.sqrt(2 * n))


def assert_glorot(weight: Tensor) -> None:
    bound = math.sqrt(6 / (weight.shape[0] + weight.shape[1]))
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.97 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=5 / math.sqrt(weight.numel()))


@pytest.mark.parametrize("positions", ["learned", "relative-values"])
def test_embeddings_are_initialised_with_std_inverse_root_of_width(positions: str) -> None:
    model = build_random_model(positions=positions, n_positions=500, tied=False)
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    assert len(embeddings) == (3 + 2 if positions == "learned" else 3 + 4 * 2)
    for each in embeddings:
        assert_normal(each.weight, each.embedding_dim**-0.5)


def test_matrices_are_initialised_uniformly_per_projection() -> None:
    model = nn.ModuleList([MultiHeadAttention(32, 4, d_key=6, d_value=20), FeedForward(32, 64, torch.relu)])
    initialise_weights(model, torch.Generator().manual_seed(0))
    attention, inner = model
    slices = attention.projection.weight.split([24, 24, 80])
    for weight in (*slices, attention.output.weight, inner.up_projection.weight, inner.down_projection.weight):
        assert_glorot(weight)


def test_other_matrices_and_pooling_queries_are_initialised() -> None:
    def build() -> nn.ModuleList:
        return nn.ModuleList(
            [
                AdditiveAttention(30, 40, 50),
                BilinearAttention(30, 40),
                nn.Linear(64, 20),
                AttentionPooling(200, n_hops=20),
                AttentionPooling(20, learned=False),
            ]
        )

    model, again = build(), build()
    for each in (model, again):
        initialise_weights(each, torch.Generator().manual_seed(0))
    assert_close(dict(model.named_parameters()), dict(again.named_parameters()), rtol=0, atol=0)
    additive, bilinear, linear, pooling, fixed = model
    for weight in (additive.hidden.weight, bilinear.bilinear.weight, linear.weight):
        assert_glorot(weight)
    assert_normal(pooling.query, 1.0)
    assert (fixed.query == 1).all()


def test_biases_are_zero_and_norms_the_identity() -> None:
    model = tiny_model(norm="pre").float()
    initialise_weights(model, torch.Generator().manual_seed(0))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert (module.bias == 0).all()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("activation", ["relu", "gated-silu"])
@pytest.mark.parametrize(("tied", "norm"), [(True, "pre"), (False, "post")])
def test_initialisation_depends_on_the_generator_alone(positions: str, activation: str, tied: bool, norm: str) -> None:
    """No parameter keeps the value that its constructor drew."""

    def build(world: int, seed: int) -> dict[str, Tensor]:
        torch.manual_seed(world)
        config = tiny_config(positions=positions, activation=activation, tied=tied, norm=norm)
        model = TransformerSeq2Seq(config, VOCABULARY, VOCABULARY, joint=False)
        world_before = torch.get_rng_state()
        initialise_weights(model, torch.Generator().manual_seed(seed))
        assert torch.equal(torch.get_rng_state(), world_before)
        return dict(model.named_parameters())

    one, same, other = build(0, 5), build(1, 5), build(0, 6)
    assert_close(one, same, rtol=0, atol=0)
    for name, parameter in one.items():
        constant = parameter.std() == 0  # biases and norms
        assert torch.equal(parameter, other[name]) == constant, name


def test_forget_gates_alone_begin_open() -> None:
    """Of the biases of the gates input, forget, cell, output, those of the forget gate are 1, all others 0."""
    lstm = nn.LSTM(3, 4)
    initialise_weights(nn.ModuleList([lstm]), torch.Generator().manual_seed(0))
    assert lstm.bias_ih_l0.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8
    assert not lstm.bias_hh_l0.any()


def test_shared_weights_stay_shared() -> None:
    model = TransformerSeq2Seq(tiny_config(), VOCABULARY, VOCABULARY, joint=True)
    initialise_weights(model, torch.Generator().manual_seed(0))
    assert model.source_embedding.tokens.weight is model.target_embedding.tokens.weight
    assert model.softmax_embedding.weight is model.target_embedding.tokens.weight


@pytest.mark.parametrize("norm", NORMS)
def test_initial_loss_is_near_uniform(norm: str) -> None:
    """Logits have a standard deviation of about one at any width, so training starts near ``log V``."""
    for d_model in (16, 64):
        model = TransformerSeq2Seq(tiny_config(d_model=d_model, norm=norm, tied=False), 300, 300, joint=False)
        initialise_weights(model, torch.Generator().manual_seed(0))
        logits = model(packed([range(200)]), packed([range(100, 200)]))
        assert logits.std().item() == pytest.approx(1.0, abs=0.25)


def test_encoder_weights_are_initialised_as_bert() -> None:
    config = TransformerEncoderConfig(**apply_preset({"preset": "base", "n_layers": 1}, TransformerEncoderConfig))
    model = TransformerEncoder(config, 500, {})
    initialise_weights(model, torch.Generator().manual_seed(0), config.init_std)
    large = {name: weight for name, weight in model.named_parameters() if weight.ndim == 2 and weight.numel() > 10_000}
    assert len(large) == 6
    for name, weight in large.items():
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.03), name
