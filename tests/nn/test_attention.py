"""Attention scores and pooling against their definitions, and properties of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import reference
import torch
from reference import array, one_sentence, random_positions, reference_mask
from torch import nn
from torch.testing import assert_close

from regard.nn import (
    AdditiveAttention,
    Attention,
    AttentionPooling,
    BilinearAttention,
    DotAttention,
    PackedPositions,
    ProjectedAttention,
    ScaledDotAttention,
    TanhAttention,
    make_mask,
    record,
    redundancy_penalty,
)

Score = Callable[[np.ndarray, np.ndarray], float]


def additive(d_query: int, d_key: int) -> tuple[Attention, Score]:
    module = AdditiveAttention(d_query, d_key, d_hidden=5).double()
    w_a, v_a = array(module.hidden.weight), array(module.energy.weight)[0]
    return module, lambda q, k: float(v_a @ np.tanh(w_a @ np.concatenate((k, q))))


def dot(d_query: int, d_key: int) -> tuple[Attention, Score]:
    return DotAttention(), lambda q, k: float(k @ q)


def scaled_dot(d_query: int, d_key: int) -> tuple[Attention, Score]:
    return ScaledDotAttention(), lambda q, k: float(k @ q) / math.sqrt(d_key)


def bilinear(d_query: int, d_key: int) -> tuple[Attention, Score]:
    module = BilinearAttention(d_query, d_key).double()
    m = array(module.bilinear.weight)
    return module, lambda q, k: float(q @ m @ k)


CASES = [(additive, 4, 4), (additive, 3, 6), (dot, 4, 4), (scaled_dot, 5, 5), (bilinear, 4, 4), (bilinear, 6, 3)]


@pytest.mark.parametrize(("make", "d_query", "d_key"), CASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_weights_and_outputs_match_the_definition(
    make: Callable[[int, int], tuple[Attention, Score]], d_query: int, d_key: int, causal: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    module, score = make(d_query, d_key)
    rows, n_queries, n_keys = 2, 4 + seed, 6 - seed
    query, key, value = (
        torch.randn(rows, n, width, dtype=torch.float64)
        for n, width in ((n_queries, d_query), (n_keys, d_key), (n_keys, 7))
    )
    query_positions, key_positions = random_positions(seed, rows, n_queries), random_positions(seed + 50, rows, n_keys)
    allowed_keys = reference_mask(query_positions, key_positions, causal=causal)
    with record(module, "scores", "weights") as recorded:
        out = module(query, key, value, make_mask(query_positions, key_positions, causal=causal))
    for row in range(rows):
        scores = [[score(array(q), array(k)) for k in key[row]] for q in query[row]]
        assert_close(array(recorded["scores"][row]), np.array(scores), rtol=1e-12, atol=1e-14)
        weights, expected = reference.attention(
            score, *map(array, (query[row], key[row], value[row])), allowed_keys[row]
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-12, atol=1e-14)
        assert_close(array(out[row]), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("make", "d_query", "d_key"), CASES)
def test_weights_are_a_distribution_or_zeros(make: Callable, d_query: int, d_key: int) -> None:
    module, _ = make(d_query, d_key)
    query_positions, key_positions = random_positions(1, 3, 6), random_positions(2, 3, 8)
    attention_mask = make_mask(query_positions, key_positions)
    query, key = torch.randn(3, 6, d_query, dtype=torch.float64), torch.randn(3, 8, d_key, dtype=torch.float64)
    with record(module, "weights") as recorded:
        module(query, key, key, attention_mask)
    weights = recorded["weights"]
    assert attention_mask.fully_masked is not None
    is_fully_masked = attention_mask.fully_masked[:, 0, :, 0]
    assert is_fully_masked.any()
    assert not is_fully_masked.all()
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), (~is_fully_masked).double(), rtol=0, atol=1e-14)
    assert (weights[torch.from_numpy(~reference_mask(query_positions, key_positions, causal=False))] == 0).all()


@pytest.mark.parametrize(("make", "d_query", "d_key"), CASES)
def test_no_mask_equals_full_mask(make: Callable, d_query: int, d_key: int) -> None:
    module, _ = make(d_query, d_key)
    query, key = torch.randn(2, 3, d_query, dtype=torch.float64), torch.randn(2, 5, d_key, dtype=torch.float64)
    everything = make_mask(one_sentence(2, 3), one_sentence(2, 5))
    assert_close(module(query, key, key), module(query, key, key, everything), rtol=0, atol=0)


@pytest.mark.parametrize(("make", "d_query", "d_key"), CASES)
def test_fully_masked_queries_give_zeros_and_zero_gradients(make: Callable, d_query: int, d_key: int) -> None:
    module, _ = make(d_query, d_key)
    empty = PackedPositions(torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32))
    query = torch.randn(2, 4, d_query, dtype=torch.float64, requires_grad=True)
    key = torch.randn(2, 4, d_key, dtype=torch.float64, requires_grad=True)
    out = module(query, key, key, make_mask(empty, one_sentence(2, 4)))
    assert (out == 0).all()
    out.sum().backward()
    for tensor in (query, key, *module.parameters()):
        assert tensor.grad is not None
        assert (tensor.grad == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_projected_attention_matches_the_definition(causal: bool) -> None:
    """``softmax((q W_Q) (k W_K)^T / sqrt(d)) v W_V`` (Vaswani et al. 2017, eq. 1), by loops."""
    torch.manual_seed(1)
    module, ids = ProjectedAttention(4, 6, 3, d_projected=5).double(), random_positions(2, 2, 6)
    query, key, value = (torch.randn(2, 6, width, dtype=torch.float64) for width in (4, 6, 3))
    with record(module, "weights") as recorded:
        out = module(query, key, value, make_mask(ids, ids, causal=causal))
    mask = reference_mask(ids, ids, causal=causal)
    w_q, w_k, w_v = (array(each.weight) for each in module.children() if isinstance(each, nn.Linear))
    for row in range(2):
        weights, expected = reference.attention(
            lambda q, k: float((w_q @ q) @ (w_k @ k)) / math.sqrt(5),
            array(query[row]),
            array(key[row]),
            array(value[row]) @ w_v.T,
            mask[row],
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-12, atol=1e-14)
        assert_close(array(out[row]), expected, rtol=1e-12, atol=1e-14)


def tanh_score(module: TanhAttention) -> Score:
    w, b = array(module.hidden.weight), array(module.hidden.bias)
    return lambda q, k: float(q @ np.tanh(w @ k + b))


POOLING_SCORES: dict[str, tuple[Callable[[], Attention], Callable[[Attention], Score]]] = {
    "scaled": (ScaledDotAttention, lambda _: lambda q, k: float(k @ q) / 2.0),
    "dot": (DotAttention, lambda _: lambda q, k: float(k @ q)),
    "additive": (lambda: TanhAttention(4, 4), tanh_score),
}


@pytest.mark.parametrize("name", POOLING_SCORES)
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("projected", [True, False])
def test_pooling_variants_match_the_definition(name: str, learned: bool, projected: bool) -> None:
    torch.manual_seed(4)
    make, define = POOLING_SCORES[name]
    key_projection, value_projection = (nn.Linear(4, 4, bias=False), nn.Linear(6, 3, bias=False))
    pooling = AttentionPooling(
        4,
        n_hops=2,
        learned=learned,
        scorer=make(),
        key_projection=key_projection if projected else None,
        value_projection=value_projection if projected else None,
    ).double()
    key, value = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0]], dtype=torch.bool)
    with record(pooling, "weights") as recorded:
        out = pooling(key, value, mask[:, None])[:, 0]
    keys, values = (key_projection(key), value_projection(value)) if projected else (key, value)
    for row in range(2):
        weights, expected = reference.attention(
            define(pooling.scorer),
            array(pooling.query),
            array(keys[row]),
            array(values[row]),
            mask[row].numpy()[None].repeat(2, 0),
        )
        assert_close(array(recorded["weights"][row, 0]), weights, rtol=1e-12, atol=1e-14)
        assert_close(array(out[row]), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", POOLING_SCORES)
def test_initial_pooling_scores_have_a_deviation_near_one(name: str) -> None:
    torch.manual_seed(0)
    scorer = TanhAttention(256, 256) if name == "additive" else POOLING_SCORES[name][0]()
    pooling = AttentionPooling(256, n_hops=40, scorer=scorer)
    scores = pooling.scorer.score(pooling.query[None], torch.randn(1, 60, 256))
    assert 0.2 < float(scores.detach().std()) < 1.2


@pytest.mark.parametrize("n_hops", [1, 3])
@pytest.mark.parametrize("learned", [True, False])
def test_pooling_matches_the_definition(n_hops: int, learned: bool) -> None:
    torch.manual_seed(n_hops)
    pooling = AttentionPooling(4, n_hops=n_hops, learned=learned).double()
    key, value = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(3, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
    with record(pooling, "weights") as recorded:
        out = pooling(key, value, mask[:, None]).squeeze(1)
    recorded["weights"] = recorded["weights"].squeeze(1)
    for row in range(3):
        weights, expected = reference.attention(
            lambda q, k: float(k @ q) / 2.0,
            array(pooling.query),
            array(key[row]),
            array(value[row]),
            mask[row].numpy()[None].repeat(n_hops, 0),
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-12, atol=1e-14)
        assert_close(array(out[row]), expected, rtol=1e-12, atol=1e-14)
    assert_close(recorded["weights"].sum(-1)[:2], torch.ones(2, n_hops, dtype=torch.float64), rtol=0, atol=1e-14)
    assert (out[2] == 0).all()


def test_fixed_pooling_query_is_ones_and_frozen() -> None:
    fixed, learned = AttentionPooling(4, learned=False), AttentionPooling(4)
    assert (fixed.query == 1).all()
    assert [p for p in fixed.parameters() if p.requires_grad] == []
    assert [p.shape for p in learned.parameters() if p.requires_grad] == [(1, 4)]


def test_pooling_packed_texts_equals_pooling_each_text() -> None:
    pooling = AttentionPooling(4, n_hops=2).double()
    key, value = torch.randn(1, 5, 4, dtype=torch.float64), torch.randn(1, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]], dtype=torch.bool)
    out = pooling(key, value, mask)
    for text, tokens in enumerate((slice(0, 2), slice(2, 5))):
        part = pooling(key[:, tokens], value[:, tokens], mask[:, text : text + 1, tokens])
        assert_close(out[:, text], part[:, 0], rtol=1e-12, atol=1e-14)


def test_pooling_an_empty_text_has_zero_gradients() -> None:
    pooling = AttentionPooling(4, n_hops=2)
    key = torch.randn(1, 5, 4, requires_grad=True)
    pooling(key, key, torch.zeros(1, 1, 5, dtype=torch.bool)).sum().backward()
    assert key.grad is not None
    assert pooling.query.grad is not None
    assert (key.grad == 0).all()
    assert (pooling.query.grad == 0).all()


def test_redundancy_penalty_matches_the_definition() -> None:
    weights = torch.rand(2, 3, 5, dtype=torch.float64).softmax(-1)
    penalty = redundancy_penalty(weights)
    for row in range(2):
        expected = 0.0
        for i in range(3):
            for j in range(3):
                shared = sum(float(weights[row, i, t] * weights[row, j, t]) for t in range(5))
                expected += (shared - (i == j)) ** 2
        assert penalty[row].item() == pytest.approx(expected, rel=1e-12)


def test_one_hot_hops_on_different_tokens_have_no_penalty() -> None:
    assert_close(redundancy_penalty(torch.eye(4)[None, :3]), torch.zeros(1), rtol=0, atol=0)


@pytest.mark.parametrize(("make", "d_query", "d_key"), CASES)
def test_gradients_pass_gradcheck(make: Callable, d_query: int, d_key: int) -> None:
    module, _ = make(d_query, d_key)
    attention_mask = make_mask(random_positions(3, 1, 4), random_positions(4, 1, 4))
    inputs = [torch.randn(1, 4, width, dtype=torch.float64, requires_grad=True) for width in (d_query, d_key, 2)]
    assert torch.autograd.gradcheck(lambda q, k, v: module(q, k, v, attention_mask), inputs)


def test_bilinear_attention_equals_an_attention_head() -> None:
    """``q^T M k`` with ``M = W_Q W_K^T / sqrt(k)`` has the weights of a head without biases."""
    w_q, w_k = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    attention = BilinearAttention(6, 6).double()
    attention.bilinear.weight = nn.Parameter(w_q @ w_k.T / math.sqrt(3))
    with record(attention, "weights") as recorded:
        attention(x, x, x)
    expected = (x @ w_q @ (x @ w_k).mT / math.sqrt(3)).softmax(-1)
    assert_close(recorded["weights"], expected, rtol=1e-12, atol=1e-14)
