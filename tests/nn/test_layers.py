"""Transformer layers against their definitions and against torch.nn with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import reference
import torch
from reference import array, one_sentence, random_positions
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
RESIDUALS = {"post": PostNorm, "pre": PreNorm}

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


def randomise_norms(module: nn.Module) -> nn.Module:
    """Convert to float64 and randomise the norms, which are the identity at first."""
    with torch.no_grad():
        for norm in module.modules():
            if isinstance(norm, nn.LayerNorm):
                norm.weight.normal_(1, 0.3)
                norm.bias.normal_(0, 0.3)
    return module.double()


def encoder_layer(norm: str = "post", dropout: float = 0.0) -> EncoderLayer:
    residual = partial(RESIDUALS[norm], D, dropout)
    return randomise_norms(EncoderLayer(MultiHeadAttention(D, H), FeedForward(D, FF, F.relu), residual))


def decoder_layer(norm: str = "post", dropout: float = 0.0) -> DecoderLayer:
    residual = partial(RESIDUALS[norm], D, dropout)
    attention, cross = MultiHeadAttention(D, H), MultiHeadAttention(D, H)
    return randomise_norms(DecoderLayer(attention, cross, FeedForward(D, FF, F.relu), residual))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_feed_forward_matches_the_definition(name: str) -> None:
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
def test_gated_feed_forward_matches_the_definition(name: str) -> None:
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


@pytest.mark.parametrize("norm", RESIDUALS)
def test_norm_placement_matches_the_definition(norm: str) -> None:
    residual, x, w = randomise_norms(RESIDUALS[norm](D, 0.0)), normal(2, 3, D), normal(D, D)
    out, gain, shift = residual(x, lambda x: x @ w), array(residual.norm.weight), array(residual.norm.bias)
    for row in range(2):
        for t in range(3):
            token, matrix = array(x[row, t]), array(w)
            if norm == "post":
                expected = reference.layer_norm(token + token @ matrix, gain, shift)
            else:
                expected = token + reference.layer_norm(token, gain, shift) @ matrix
            assert_close(array(out[row, t]), expected, rtol=1e-11, atol=1e-13)


def test_dropout_applies_to_the_sublayer_not_to_the_residual() -> None:
    x = normal(2, 3, D)
    post, pre = randomise_norms(PostNorm(D, 1.0)), randomise_norms(PreNorm(D, 1.0))
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


@pytest.mark.parametrize("norm", RESIDUALS)
def test_encoder_layer_equals_torch(norm: str) -> None:
    theirs = randomise_norms(nn.TransformerEncoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=norm == "pre"))
    ours = encoder_layer(norm)
    copy_attention(theirs.self_attn, ours.attention)
    copy_rest(theirs, ours, [ours.attention_residual.norm, ours.feed_forward_residual.norm])
    x, padded = normal(2, 6, D), torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=torch.bool)
    packed = PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    expected = theirs(x, src_key_padding_mask=padded)
    assert_close(ours(x, make_mask(packed, packed))[~padded], expected[~padded], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("norm", RESIDUALS)
def test_decoder_layer_equals_torch(norm: str) -> None:
    theirs = randomise_norms(nn.TransformerDecoderLayer(D, H, FF, 0.0, batch_first=True, norm_first=norm == "pre"))
    ours = decoder_layer(norm)
    copy_attention(theirs.self_attn, ours.attention)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    norms = [ours.attention_residual.norm, ours.cross_attention_residual.norm, ours.feed_forward_residual.norm]
    copy_rest(theirs, ours, norms)
    x, source = normal(2, 5, D), normal(2, 6, D)
    padded = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=torch.bool)
    target, source_positions = one_sentence(2, 5), PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(x, source, tgt_mask=future, memory_key_padding_mask=padded)
    kv = ours.cross_attention.project_kv(source, source_positions.position)
    assert_close(
        ours(x, kv, make_mask(target, target, causal=True), make_mask(target, source_positions)),
        expected,
        rtol=1e-11,
        atol=1e-12,
    )


def test_stacks_apply_their_layers_in_order() -> None:
    encoder, decoder = (
        EncoderStack(encoder_layer() for _ in range(3)),
        DecoderStack(decoder_layer("pre") for _ in range(2)),
    )
    x, source, target, source_positions = (
        normal(2, 5, D),
        normal(2, 7, D),
        random_positions(0, 2, 5),
        random_positions(1, 2, 7),
    )
    expected = source
    for layer in encoder:
        expected = layer(expected, make_mask(source_positions, source_positions))
    assert_close(encoder(source, make_mask(source_positions, source_positions)), expected, rtol=0, atol=0)
    masks = make_mask(target, target, causal=True), make_mask(target, source_positions)
    cross_kv = decoder.project_kv(source, source_positions.position)
    expected = x
    for layer, kv in zip(decoder, cross_kv, strict=True):
        expected = layer(expected, kv, *masks)
    assert_close(decoder(x, cross_kv, *masks), expected, rtol=0, atol=0)


@pytest.mark.parametrize("norm", RESIDUALS)
def test_packed_layers_equal_separate_sentences(norm: str) -> None:
    encoder, decoder = (
        EncoderStack(encoder_layer(norm) for _ in range(2)),
        DecoderStack(decoder_layer(norm) for _ in range(2)),
    )
    target, source_positions = random_positions(4, 2, 10), random_positions(5, 2, 12)
    x, source = normal(2, 10, D), normal(2, 12, D)

    def run(
        x: Tensor, source: Tensor, target: PackedPositions, source_positions: PackedPositions
    ) -> tuple[Tensor, Tensor]:
        encoded = encoder(source, make_mask(source_positions, source_positions))
        cross_kv = decoder.project_kv(encoded, source_positions.position)
        return encoded, decoder(
            x, cross_kv, make_mask(target, target, causal=True), make_mask(target, source_positions)
        )

    encoded, decoded = run(x, source, target, source_positions)
    checked = 0
    for row in range(2):
        for number in (1, 2, 3):
            target_tokens, source_tokens = target.segment[row] == number, source_positions.segment[row] == number
            if not (target_tokens.any() and source_tokens.any()):
                continue
            sentence_positions = one_sentence(1, int(target_tokens.sum())), one_sentence(1, int(source_tokens.sum()))
            separate = run(x[row, target_tokens][None], source[row, source_tokens][None], *sentence_positions)
            assert_close(encoded[row, source_tokens], separate[0][0], rtol=1e-11, atol=1e-12)
            assert_close(decoded[row, target_tokens], separate[1][0], rtol=1e-11, atol=1e-12)
            checked += 1
    assert checked >= 3


def test_an_encoder_without_positions_is_permutation_equivariant() -> None:
    encoder, packed, x = EncoderStack(encoder_layer("pre") for _ in range(2)), one_sentence(1, 6), normal(1, 6, D)
    order, attention_mask = torch.tensor([3, 0, 5, 1, 4, 2]), make_mask(packed, packed)
    assert_close(encoder(x[:, order], attention_mask), encoder(x, attention_mask)[:, order], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scaled", [True, False])
def test_embedding_is_scaled_token_plus_position(scaled: bool) -> None:
    positions = SinusoidalPositions(D)
    embedding = TokenEmbedding(11, D, positions, dropout=0.0, scaled=scaled).double()
    ids, packed = torch.tensor([[3, 0, 10]], dtype=torch.int32), one_sentence(1, 3)
    out = embedding(ids, packed.position)
    for t, token in enumerate((3, 0, 10)):
        row = positions.table(torch.tensor([t]), torch.float64)[0]
        expected = embedding.tokens.weight[token] * (math.sqrt(D) if scaled else 1) + row
        assert_close(out[0, t], expected, rtol=1e-12, atol=1e-13)


def test_embedding_drops_out_in_training_only() -> None:
    embedding = TokenEmbedding(11, D, NoPositions(), dropout=1.0)
    ids, position = torch.tensor([[3, 4]]), torch.tensor([[0, 1]])
    assert (embedding(ids, position) == 0).all()
    assert (embedding.eval()(ids, position) != 0).all()


def test_layer_outputs_are_recorded() -> None:
    encoder, packed, x = EncoderStack(encoder_layer() for _ in range(2)), one_sentence(1, 3), normal(1, 3, D)
    with record(encoder, "*.out") as recorded:
        out = encoder(x, make_mask(packed, packed))
    assert list(recorded) == ["0.out", "1.out"]
    assert recorded["1.out"] is out
    assert_close(encoder[1](recorded["0.out"], make_mask(packed, packed)), out, rtol=0, atol=0)
