"""Position schemes against their definitions, row by row and distance by distance."""

from __future__ import annotations

import math

import pytest
import torch
from reference import one_sentence, random_positions
from torch.testing import assert_close

from regard.nn import (
    AttentionMask,
    LearnedPositions,
    NoPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    make_mask,
)


def test_sinusoidal_rows_of_width_4() -> None:
    table = SinusoidalPositions(4).table(torch.arange(2000), torch.float64)
    for p in (0, 1, 2, 7, 50, 1999):
        expected = [math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)]
        assert_close(table[p].tolist(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("width", "base"), [(2, 10000.0), (6, 10000.0), (128, 10000.0), (8, 100.0)])
def test_sinusoidal_matches_the_formula(width: int, base: float) -> None:
    table = SinusoidalPositions(width, base).table(torch.arange(50), torch.float64)
    for p in range(50):
        for i in range(width // 2):
            angle = p / base ** (2 * i / width)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoidal_float32_is_close_at_any_length() -> None:
    far = torch.tensor([0, 1, 511, 4096, 20_000], dtype=torch.int32)
    positions = SinusoidalPositions(64)
    assert_close(positions.table(far).double(), positions.table(far, torch.float64), rtol=0, atol=5e-3)
    assert_close(positions.table(far[:3]).double(), positions.table(far[:3], torch.float64), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sinusoidal_adds_the_row_of_each_token(dtype: torch.dtype) -> None:
    packed = random_positions(0, 2, 9)
    positions = SinusoidalPositions(6)
    x = torch.randn(2, 9, 6, dtype=dtype)
    added = positions.embed(x, packed.position)
    assert added.dtype == dtype
    for row in range(2):
        for t, p in enumerate(packed.position[row].tolist()):
            expected = x[row, t] + positions.table(torch.tensor([p]), torch.float64)[0].to(dtype)
            assert_close(added[row, t], expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 5])
def test_odd_widths_are_refused(width: int) -> None:
    with pytest.raises(AssertionError, match=f"sinusoidal positions need an even width, found d_model = {width}"):
        SinusoidalPositions(width)
    with pytest.raises(AssertionError, match=f"rotary positions need an even width per head, found {width}"):
        RotaryPositions(width)


def test_learned_adds_its_vector_by_position() -> None:
    positions, packed = LearnedPositions(10, 4), random_positions(3, 2, 8)
    x = torch.randn(2, 8, 4)
    added = positions.embed(x, packed.position)
    for row in range(2):
        for t, p in enumerate(packed.position[row].tolist()):
            assert_close(added[row, t], x[row, t] + positions.embedding.weight[p], rtol=0, atol=0)


@pytest.mark.parametrize("make", [NoPositions, lambda: RelativePositions(4), lambda: RotaryPositions(4)])
def test_attention_schemes_do_not_change_embeddings(make: type[Positions]) -> None:
    x = torch.randn(1, 5, 4)
    assert make().embed(x, torch.arange(5)[None]) is x


@pytest.mark.parametrize("make", [NoPositions, lambda: SinusoidalPositions(4), lambda: LearnedPositions(9, 4)])
def test_embedding_schemes_do_not_change_attention(make: type[Positions]) -> None:
    positions, heads, packed = make(), torch.randn(1, 2, 5, 4), one_sentence(1, 5)
    attention_mask = make_mask(packed, packed)
    assert positions.rotate(heads, packed.position) is heads
    assert positions.score_bias(heads, attention_mask) is None
    assert positions.value_bias(heads.new_zeros(1, 2, 5, 5), attention_mask) is None
    assert not positions.needs_weights


@pytest.mark.parametrize("max_distance", [1, 2, 16])
@pytest.mark.parametrize("seed", range(3))
def test_relative_scores_and_values_match_the_definition(max_distance: int, seed: int) -> None:
    torch.manual_seed(seed)
    positions = RelativePositions(3, max_distance, d_value=5).double()
    assert positions.values is not None
    assert positions.keys.num_embeddings == positions.values.num_embeddings == 2 * max_distance + 1
    query, key = random_positions(seed, 2, 6), random_positions(seed + 1, 2, 8)
    attention_mask = make_mask(query, key)
    vectors = torch.randn(2, 2, 6, 3, dtype=torch.float64)
    weights = torch.rand(2, 2, 6, 8, dtype=torch.float64)
    score, value = positions.score_bias(vectors, attention_mask), positions.value_bias(weights, attention_mask)
    assert score is not None
    assert value is not None
    for b in range(2):
        for h in range(2):
            for i in range(6):
                expected = torch.zeros(5, dtype=torch.float64)
                for j in range(8):
                    distance = int(key.position[b, j]) - int(query.position[b, i])
                    index = max(-max_distance, min(max_distance, distance)) + max_distance
                    assert_close(
                        score[b, h, i, j], vectors[b, h, i] @ positions.keys.weight[index], rtol=1e-12, atol=1e-14
                    )
                    expected += weights[b, h, i, j] * positions.values.weight[index]
                assert_close(value[b, h, i], expected, rtol=1e-12, atol=1e-14)


def test_relative_without_values_runs_fused() -> None:
    assert not RelativePositions(4).needs_weights
    assert RelativePositions(4).values is None
    assert RelativePositions(4, d_value=4).needs_weights


def test_relative_scores_depend_only_on_distance() -> None:
    positions = RelativePositions(4, 3)
    query, packed = torch.randn(1, 1, 1, 4).expand(1, 1, 9, 4), one_sentence(1, 9)
    score = positions.score_bias(query, make_mask(packed, packed))
    shifted = positions.score_bias(query, AttentionMask(packed.position + 40, packed.position + 40))
    assert score is not None
    assert shifted is not None
    assert_close(score, shifted, rtol=0, atol=0)
    for offset in range(-8, 9):
        same_distance = score[0, 0].diagonal(offset)
        assert_close(same_distance, same_distance[:1].expand_as(same_distance), rtol=0, atol=0)
    assert_close(score[0, 0, 0, 3], score[0, 0, 0, 8], rtol=0, atol=0)  # clipped


@pytest.mark.parametrize("width", [2, 6, 16])
def test_rotary_keeps_norms(width: int) -> None:
    heads, position = torch.randn(2, 3, 7, width, dtype=torch.float64), torch.randint(0, 500, (2, 7))
    rotated = RotaryPositions(width).rotate(heads, position)
    assert_close(rotated.norm(dim=-1), heads.norm(dim=-1), rtol=1e-12, atol=0)
    assert_close(RotaryPositions(width).rotate(heads, torch.zeros(2, 7, dtype=torch.long)), heads, rtol=0, atol=0)


def test_rotary_scores_depend_only_on_distance() -> None:
    positions = RotaryPositions(8)
    query, key = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)
    packed = torch.arange(10)[None]
    rotated_query = positions.rotate(query.expand(1, 1, 10, 8), packed)
    rotated_key = positions.rotate(key.expand(1, 1, 10, 8), packed)
    scores = (rotated_query @ rotated_key.mT)[0, 0]
    for offset in range(-9, 10):
        same_distance = scores.diagonal(offset)
        assert_close(same_distance, same_distance[:1].expand_as(same_distance), rtol=1e-10, atol=1e-12)
    assert not torch.allclose(scores[0, 0], scores[0, 1])


def test_rotary_rotates_by_the_documented_angle() -> None:
    heads = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 1, 4)
    rotated = RotaryPositions(4).rotate(heads, torch.tensor([[3]]))
    assert_close(rotated.flatten().tolist(), [math.cos(3), 0.0, math.sin(3), 0.0], rtol=0, atol=1e-12)
    other = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 1, 4)
    rotated = RotaryPositions(4).rotate(other, torch.tensor([[3]]))
    assert_close(rotated.flatten().tolist(), [0.0, math.cos(0.03), 0.0, math.sin(0.03)], rtol=0, atol=1e-12)
