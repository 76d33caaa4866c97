"""Blocks against their definitions and against torch.nn's layers with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import reference
import torch
from reference import array, one_sentence, random_place
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from regard.nn import (
    DecoderLayer,
    DecoderStack,
    EncoderLayer,
    EncoderStack,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    NoPositions,
    PackedPositions,
    PostNorm,
    PreNorm,
    SinusoidalPositions,
    TokenEmbedding,
    make_mask,
    record,
)

D, H, FF = 8, 2, 12
AROUND = {"post": PostNorm, "pre": PreNorm}

DEFINITIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[float], float]]] = {
    "relu": (F.relu, lambda x: max(0.0, x)),
    "gelu": (F.gelu, lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "gelu-tanh": (
        partial(F.gelu, approximate="tanh"),
        lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (F.silu, lambda x: x / (1 + math.exp(-x))),
}


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def shaken(module: nn.Module) -> nn.Module:
    """In float64, with norms that are not the identity."""
    with torch.no_grad():
        for norm in module.modules():
            if isinstance(norm, nn.LayerNorm):
                norm.weight.normal_(1, 0.3)
                norm.bias.normal_(0, 0.3)
    return module.double()


def encoder_layer(norm: str = "post", dropout: float = 0.0) -> EncoderLayer:
    around = partial(AROUND[norm], D, dropout)
    return shaken(EncoderLayer(MultiHeadAttention(D, H), FeedForward(D, FF, F.relu), around))


def decoder_layer(norm: str = "post", dropout: float = 0.0) -> DecoderLayer:
    around = partial(AROUND[norm], D, dropout)
    attention, cross = MultiHeadAttention(D, H), MultiHeadAttention(D, H)
    return shaken(DecoderLayer(attention, cross, FeedForward(D, FF, F.relu), around))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_feed_forward_is_the_definition(name: str) -> None:
    activation, plain = DEFINITIONS[name]
    module, x = FeedForward(D, FF, activation).double(), normal(2, 3, D)
    w_1, b_1, w_2, b_2 = (
        array(t)
        for t in (
            module.up_projection.weight,
            module.up_projection.bias,
            module.down_projection.weight,
            module.down_projection.bias,
        )
    )
    out = module(x)
    for row in range(2):
        for t in range(3):
            inner = np.array([plain(v) for v in w_1 @ array(x[row, t]) + b_1])
            assert_close(array(out[row, t]), w_2 @ inner + b_2, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_gated_feed_forward_is_the_definition(name: str) -> None:
    activation, plain = DEFINITIONS[name]
    module, x = GatedFeedForward(D, FF, activation).double(), normal(1, 4, D)
    gate, value = array(module.up_projection.weight)[:FF], array(module.up_projection.weight)[FF:]
    b_gate, b_value = array(module.up_projection.bias)[:FF], array(module.up_projection.bias)[FF:]
    out = module(x)
    for t in range(4):
        token = array(x[0, t])
        inner = np.array([plain(v) for v in gate @ token + b_gate]) * (value @ token + b_value)
        expected = array(module.down_projection.weight) @ inner + array(module.down_projection.bias)
        assert_close(array(out[0, t]), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("norm", AROUND)
def test_norm_placement_is_the_definition(norm: str) -> None:
    around, x, w = shaken(AROUND[norm](D, 0.0)), normal(2, 3, D), normal(D, D)
    out, gain, shift = around(x, lambda x: x @ w), array(around.norm.weight), array(around.norm.bias)
    for row in range(2):
        for t in range(3):
            token, matrix = array(x[row, t]), array(w)
            if norm == "post":
                expected = reference.layer_norm(token + token @ matrix, gain, shift)
            else:
                expected = token + reference.layer_norm(token, gain, shift) @ matrix
            assert_close(array(out[row, t]), expected, rtol=1e-11, atol=1e-13)


def test_dropout_falls_on_the_sublayer_not_on_the_residual() -> None:
    x = normal(2, 3, D)
    post, pre = shaken(PostNorm(D, 1.0)), shaken(PreNorm(D, 1.0))
    assert_close(post(x, lambda x: x * 5), post.norm(x), rtol=0, atol=0)
    assert_close(pre(x, lambda x: x * 5), x, rtol=0, atol=0)
    assert_close(pre.eval()(x, torch.sin), x + pre.norm(x).sin(), rtol=0, atol=0)


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    ours.load_state_dict(
        {
            "projection.weight": theirs.in_proj_weight,
            "projection.bias": theirs.in_proj_bias,
            "output.weight": theirs.out_proj.weight,
            "output.bias": theirs.out_proj.bias,
        }
    )


def copy_rest(theirs: nn.Module, ours: EncoderLayer | DecoderLayer, norms: list[nn.LayerNorm]) -> None:
    ours.feed_forward.up_projection.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down_projection.load_state_dict(theirs.linear2.state_dict())
    for number, norm in enumerate(norms, 1):
        norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())


@pytest.mark.parametrize("norm", AROUND)
def test_encoder_layer_is_that_of_torch(norm: str) -> None:
    theirs = shaken(nn.TransformerEncoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=norm == "pre"))
    ours = encoder_layer(norm)
    copy_attention(theirs.self_attn, ours.attention)
    copy_rest(theirs, ours, [ours.attention_residual.norm, ours.feed_forward_residual.norm])
    x, padded = normal(2, 6, D), torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=torch.bool)
    place = PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    expected = theirs(x, src_key_padding_mask=padded)
    assert_close(ours(x, make_mask(place, place))[~padded], expected[~padded], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("norm", AROUND)
def test_decoder_layer_is_that_of_torch(norm: str) -> None:
    theirs = shaken(nn.TransformerDecoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=norm == "pre"))
    ours = decoder_layer(norm)
    copy_attention(theirs.self_attn, ours.attention)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    norms = [ours.attention_residual.norm, ours.cross_attention_residual.norm, ours.feed_forward_residual.norm]
    copy_rest(theirs, ours, norms)
    x, source = normal(2, 5, D), normal(2, 6, D)
    padded = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=torch.bool)
    at, of = one_sentence(2, 5), PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(x, source, tgt_mask=future, memory_key_padding_mask=padded)
    memory = ours.cross_attention.project_kv(source, of.position)
    assert_close(ours(x, memory, make_mask(at, at, causal=True), make_mask(at, of)), expected, rtol=1e-11, atol=1e-12)


def test_stacks_are_their_layers_one_after_another() -> None:
    encoder, decoder = (
        EncoderStack(encoder_layer() for _ in range(3)),
        DecoderStack(decoder_layer("pre") for _ in range(2)),
    )
    x, source, at, of = normal(2, 5, D), normal(2, 7, D), random_place(0, 2, 5), random_place(1, 2, 7)
    expected = source
    for layer in encoder:
        expected = layer(expected, make_mask(of, of))
    assert_close(encoder(source, make_mask(of, of)), expected, rtol=0, atol=0)
    sights = make_mask(at, at, causal=True), make_mask(at, of)
    memories = decoder.project_kv(source, of.position)
    expected = x
    for layer, memory in zip(decoder, memories, strict=True):
        expected = layer(expected, memory, *sights)
    assert_close(decoder(x, memories, *sights), expected, rtol=0, atol=0)


@pytest.mark.parametrize("norm", AROUND)
def test_packed_layers_are_one_by_one(norm: str) -> None:
    encoder, decoder = (
        EncoderStack(encoder_layer(norm) for _ in range(2)),
        DecoderStack(decoder_layer(norm) for _ in range(2)),
    )
    at, of = random_place(4, 2, 10), random_place(5, 2, 12)
    x, source = normal(2, 10, D), normal(2, 12, D)

    def run(x: Tensor, source: Tensor, at: PackedPositions, of: PackedPositions) -> tuple[Tensor, Tensor]:
        encoded = encoder(source, make_mask(of, of))
        memories = decoder.project_kv(encoded, of.position)
        return encoded, decoder(x, memories, make_mask(at, at, causal=True), make_mask(at, of))

    encoded, decoded = run(x, source, at, of)
    checked = 0
    for row in range(2):
        for number in (1, 2, 3):
            mine, yours = at.segment[row] == number, of.segment[row] == number
            if not (mine.any() and yours.any()):
                continue
            places = one_sentence(1, int(mine.sum())), one_sentence(1, int(yours.sum()))
            alone = run(x[row, mine][None], source[row, yours][None], *places)
            assert_close(encoded[row, yours], alone[0][0], rtol=1e-11, atol=1e-12)
            assert_close(decoded[row, mine], alone[1][0], rtol=1e-11, atol=1e-12)
            checked += 1
    assert checked >= 3


def test_an_encoder_without_positions_is_permutation_equivariant() -> None:
    encoder, place, x = EncoderStack(encoder_layer("pre") for _ in range(2)), one_sentence(1, 6), normal(1, 6, D)
    order, sight = torch.tensor([3, 0, 5, 1, 4, 2]), make_mask(place, place)
    assert_close(encoder(x[:, order], sight), encoder(x, sight)[:, order], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scaled", [True, False])
def test_embedding_is_scaled_vector_plus_position(scaled: bool) -> None:
    positions = SinusoidalPositions(D)
    embedding = TokenEmbedding(11, D, positions, dropout=0.0, scaled=scaled).double()
    ids, place = torch.tensor([[3, 0, 10]], dtype=torch.int32), one_sentence(1, 3)
    out = embedding(ids, place.position)
    for t, token in enumerate((3, 0, 10)):
        row = positions.table(torch.tensor([t]), torch.float64)[0]
        expected = embedding.tokens.weight[token] * (math.sqrt(D) if scaled else 1) + row
        assert_close(out[0, t], expected, rtol=1e-12, atol=1e-13)


def test_embedding_drops_out_in_training_only() -> None:
    embedding = TokenEmbedding(11, D, NoPositions(), dropout=1.0)
    ids, position = torch.tensor([[3, 4]]), torch.tensor([[0, 1]])
    assert (embedding(ids, position) == 0).all()
    assert (embedding.eval()(ids, position) != 0).all()


def test_layers_tell_what_they_put_out() -> None:
    encoder, place, x = EncoderStack(encoder_layer() for _ in range(2)), one_sentence(1, 3), normal(1, 3, D)
    with record(encoder, "*.out") as recorded:
        out = encoder(x, make_mask(place, place))
    assert list(recorded) == ["0.out", "1.out"]
    assert recorded["1.out"] is out
    assert_close(encoder[1](recorded["0.out"], make_mask(place, place)), out, rtol=0, atol=0)
