"""Multi-head attention against a triple loop, against torch.nn, and fused against explicit."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import reference
import torch
from reference import Scheme, array, one_sentence, random_positions, reference_mask
from torch import Tensor, nn
from torch.testing import assert_close

from regard.nn import (
    AttentionMask,
    KeyValue,
    MultiHeadAttention,
    NoPositions,
    PackedPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    edit,
    make_mask,
    record,
)

D, H = 6, 3
WIDTHS = [(None, None), (4, 5), (2, 2)]

SCHEMES: dict[str, Callable[[int, int], Positions]] = {
    "none": lambda d_key, d_value: NoPositions(),
    "relative": lambda d_key, d_value: RelativePositions(d_key, 2),
    "relative-values": lambda d_key, d_value: RelativePositions(d_key, 2, d_value=d_value),
    "rotary": lambda d_key, d_value: RotaryPositions(d_key),
}


def build(scheme: str = "none", d_key: int | None = None, d_value: int | None = None) -> MultiHeadAttention:
    positions = SCHEMES[scheme](d_key or D // H, d_value or D // H)
    return MultiHeadAttention(D, H, d_key=d_key, d_value=d_value, positions=positions).double()


def definition(module: MultiHeadAttention) -> Scheme:
    match module.positions:
        case RotaryPositions():
            return reference.rotary()
        case RelativePositions(keys=keys, values=values, max_distance=limit):
            return reference.relative(array(keys.weight), None if values is None else array(values.weight), limit)
    return Scheme()


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def gradients(out: Tensor, key_positions: list[Tensor]) -> tuple[Tensor, ...]:
    direction = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(7))
    return torch.autograd.grad((out * direction).sum(), key_positions)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("d_key", "d_value"), WIDTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_matches_the_definition(
    scheme: str, d_key: int | None, d_value: int | None, causal: bool
) -> None:
    torch.manual_seed(0)
    module, packed_ids, x = build(scheme, d_key, d_value), random_positions(5, 2, 8), normal(2, 8, D)
    attention_mask, allowed_keys = (
        make_mask(packed_ids, packed_ids, causal=causal),
        reference_mask(packed_ids, packed_ids, causal=causal),
    )
    fused = module(x, attention_mask)
    with record(module, "weights") as recorded:
        explicit = module(x, attention_mask)
    for row in range(2):
        position = packed_ids.position[row].numpy()
        weights, out = reference.multi_head(
            module, array(x[row]), array(x[row]), allowed_keys[row], (position, position), definition(module)
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-11, atol=1e-13)
        assert_close(array(fused[row]), out, rtol=1e-11, atol=1e-13)
        assert_close(array(explicit[row]), out, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("d_key", "d_value"), WIDTHS)
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 7), (7, 3)])
def test_cross_attention_matches_the_definition(
    d_key: int | None, d_value: int | None, n_queries: int, n_keys: int
) -> None:
    torch.manual_seed(1)
    module = build("none", d_key, d_value)
    query_positions, key_positions = random_positions(2, 3, n_queries), random_positions(3, 3, n_keys)
    x, encoded = normal(3, n_queries, D), normal(3, n_keys, D)
    kv = module.project_kv(encoded, key_positions.position)
    fused = module.cross_attend(x, kv, make_mask(query_positions, key_positions))
    with record(module, "weights") as recorded:
        explicit = module.cross_attend(x, kv, make_mask(query_positions, key_positions))
    allowed_keys = reference_mask(query_positions, key_positions, causal=False)
    for row in range(3):
        weights, out = reference.multi_head(
            module,
            array(x[row]),
            array(encoded[row]),
            allowed_keys[row],
            (query_positions.position[row].numpy(), key_positions.position[row].numpy()),
            Scheme(),
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-11, atol=1e-13)
        assert_close(array(fused[row]), out, rtol=1e-11, atol=1e-13)
        assert_close(array(explicit[row]), out, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_torch(causal: bool) -> None:
    torch.manual_seed(2)
    theirs, ours = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64), build()
    ours.load_state_dict(
        {
            "projection.weight": theirs.in_proj_weight,
            "projection.bias": theirs.in_proj_bias,
            "output.weight": theirs.out_proj.weight,
            "output.bias": theirs.out_proj.bias,
        }
    )
    packed_ids, x = one_sentence(2, 7), normal(2, 7, D)
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    expected, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    attention_mask = make_mask(packed_ids, packed_ids, causal=causal)
    assert_close(ours(x, attention_mask), expected, rtol=1e-11, atol=1e-13)
    with record(ours, "weights") as recorded:
        ours(x, attention_mask)
    assert_close(recorded["weights"], weights, rtol=1e-11, atol=1e-13)


def test_cross_attention_with_padding_equals_torch() -> None:
    torch.manual_seed(3)
    theirs, ours = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64), build()
    with torch.no_grad():
        ours.projection.weight.copy_(theirs.in_proj_weight)
        ours.projection.bias.copy_(theirs.in_proj_bias.normal_())
        ours.output.load_state_dict(theirs.out_proj.state_dict())
    x, encoded = normal(2, 4, D), normal(2, 6, D)
    padded = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    source = PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    expected, _ = theirs(x, encoded, encoded, key_padding_mask=padded)
    result = ours.cross_attend(x, ours.project_kv(encoded, source.position), make_mask(one_sentence(2, 4), source))
    assert_close(result, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
def test_fused_equals_explicit(scheme: str, causal: bool, train: bool, dtype: torch.dtype, tolerance: float) -> None:
    """Outputs and gradients, packed rows and full ones."""
    torch.manual_seed(4)
    module = build(scheme, 4, 5).to(dtype).train(train)
    for packed_ids in (random_positions(6, 3, 12), one_sentence(3, 12)):
        x, attention_mask = normal(3, 12, D, dtype=dtype), make_mask(packed_ids, packed_ids, causal=causal)
        fused = module(x, attention_mask)
        with record(module, "weights") as recorded:
            explicit = module(x, attention_mask)
        assert recorded["weights"].shape == (3, H, 12, 12)
        assert_close(fused, explicit, rtol=tolerance, atol=tolerance)
        key_positions = [x, *module.parameters()]
        assert_close(
            gradients(fused, key_positions),
            gradients(explicit, key_positions),
            rtol=10 * tolerance,
            atol=10 * tolerance,
        )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_mask_equals_the_mask_of_one_full_sentence(scheme: str) -> None:
    module, packed_ids, x = build(scheme), one_sentence(2, 5), normal(2, 5, D)
    unmasked = AttentionMask(packed_ids.position, packed_ids.position)
    assert_close(module(x, unmasked), module(x, make_mask(packed_ids, packed_ids)), rtol=1e-12, atol=1e-14)
    with record(module, "weights"):
        assert_close(module(x, unmasked), module(x, make_mask(packed_ids, packed_ids)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("active", [False, True])
def test_fully_masked_queries_give_zeros_and_finite_gradients(scheme: str, active: bool) -> None:
    module = build(scheme)
    empty = PackedPositions(torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32))
    x = normal(2, 4, D)
    attention_mask = make_mask(empty, empty)
    if active:
        with record(module, "weights") as recorded:
            out = module(x, attention_mask)
        assert (recorded["weights"] == 0).all()
    else:
        out = module(x, attention_mask)
    assert_close(out, module.output.bias.expand_as(out), rtol=0, atol=0)  # zeros through the output projection
    out.sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()
    assert module.projection.weight.grad is not None
    assert (module.projection.weight.grad == 0).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_pass_gradcheck(scheme: str) -> None:
    torch.manual_seed(5)
    module, packed_ids = build(scheme), random_positions(8, 1, 4)
    assert (packed_ids.segment > 0).any()
    attention_mask, x = make_mask(packed_ids, packed_ids, causal=True), normal(1, 4, D)
    assert torch.autograd.gradcheck(lambda x: module(x, attention_mask), (x,))
    with record(module, "weights"):
        assert torch.autograd.gradcheck(lambda x: module(x, attention_mask), (x,))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_future_cannot_change_the_past(scheme: str) -> None:
    module, packed_ids, x = build(scheme), one_sentence(1, 8), normal(1, 8, D)
    attention_mask = make_mask(packed_ids, packed_ids, causal=True)
    other = torch.cat((x[:, :5], torch.randn(1, 3, D, dtype=torch.float64)), 1)
    assert_close(module(other, attention_mask)[:, :5], module(x, attention_mask)[:, :5], rtol=0, atol=1e-15)
    assert not torch.allclose(module(other, attention_mask)[:, 5:], module(x, attention_mask)[:, 5:])


def test_recorded_causal_weights_are_zero_right_of_the_diagonal() -> None:
    module, packed_ids = build(), one_sentence(1, 4)
    with record(module, "weights") as recorded:
        module(normal(1, 4, D), make_mask(packed_ids, packed_ids, causal=True))
    weights = recorded["weights"]
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    assert (weights.tril().sum(-1) - 1).abs().max() < 1e-14
    assert (weights[..., torch.tril(torch.ones(4, 4, dtype=torch.bool))] > 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_scaled_dot_products_and_masked_scores_mark_what_no_query_sees(causal: bool) -> None:
    module, positions, x = build(), random_positions(5, 2, 8), normal(2, 8, D)
    attention_mask = make_mask(positions, positions, causal=causal)
    with record(module, "query", "key", "scores", "masked_scores", "weights") as recorded:
        module(x, attention_mask)
    query, key, scores = array(recorded["query"]), array(recorded["key"]), recorded["scores"]
    for row, head, i, j in np.ndindex(2, H, 8, 8):
        expected = query[row, head, i] @ key[row, head, j] / math.sqrt(D // H)
        assert abs(array(scores)[row, head, i, j] - expected) < 1e-13
    assert attention_mask.mask is not None
    assert attention_mask.fully_masked is not None
    seen = attention_mask.mask.expand_as(scores)
    assert (recorded["masked_scores"][~seen] == -torch.inf).all()
    assert torch.equal(recorded["masked_scores"][seen], scores[seen])
    assert not seen.all()
    weights = recorded["masked_scores"].softmax(-1).masked_fill(attention_mask.fully_masked, 0.0)
    assert torch.equal(recorded["weights"], weights)


@pytest.mark.parametrize("name", ["scores", "masked_scores"])
def test_edited_scores_change_the_output_as_edited_weights_do(name: str) -> None:
    module, positions, x = build(), one_sentence(1, 5), normal(1, 5, D)
    mask = make_mask(positions, positions, causal=True)
    with edit(module, name, lambda scores: scores - 1e4 * torch.eye(5).roll(1, 0)):  # as good as -inf: not the last one
        by_scores = module(x, mask)
    with edit(module, "weights", without_previous):
        by_weights = module(x, mask)
    assert_close(by_scores, by_weights, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(by_scores, module(x, mask))


def without_previous(weights: Tensor) -> Tensor:
    rest = weights * (1 - torch.eye(5).roll(1, 0))
    return rest / rest.sum(-1, keepdim=True)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [False, True])
def test_packed_segments_equal_separate_sentences(scheme: str, causal: bool) -> None:
    torch.manual_seed(6)
    module = build(scheme, 4, 3)
    sentences = [torch.randn(1, n, D, dtype=torch.float64) for n in (4, 1, 3)]
    segment = torch.tensor([[1, 1, 1, 1, 2, 3, 3, 3, 0, 0]])
    position = torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2, 0, 0]])
    packed = torch.cat((*sentences, torch.randn(1, 2, D, dtype=torch.float64)), 1)
    packed_ids = PackedPositions(segment, position)
    packed_rows = module(packed, make_mask(packed_ids, packed_ids, causal=causal))
    for number, sentence in enumerate(sentences, 1):
        packed_ids = one_sentence(1, sentence.shape[1])
        separate = module(sentence, make_mask(packed_ids, packed_ids, causal=causal))
        assert_close(packed_rows[segment == number][None], separate, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("active", [False, True])
def test_lengths_equal_the_mask_of_the_same_sentences(scheme: str, active: bool) -> None:
    torch.manual_seed(6)
    module, lengths = build(scheme, 4, 3), (3, 3, 1, 4, 3)
    segment = torch.tensor([[number for number, length in enumerate(lengths, 1) for _ in range(length)]])
    packed_ids = PackedPositions(
        segment, torch.tensor([[packed_ids for length in lengths for packed_ids in range(length)]])
    )
    x = normal(1, sum(lengths), D)
    with record(module, "weights") if active else nullcontext():
        by_length = module(x, AttentionMask(packed_ids.position, packed_ids.position, lengths=lengths))
        masked = module(x, make_mask(packed_ids, packed_ids))
    assert_close(by_length, masked, rtol=1e-12, atol=1e-14)
    key_positions = [x, *module.parameters()]
    assert_close(gradients(by_length, key_positions), gradients(masked, key_positions), rtol=1e-10, atol=1e-12)


def test_without_positions_it_is_permutation_equivariant() -> None:
    module, packed_ids, x = build("none"), one_sentence(2, 6), normal(2, 6, D)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    attention_mask = make_mask(packed_ids, packed_ids)
    assert_close(module(x[:, order], attention_mask), module(x, attention_mask)[:, order], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "none"])
def test_with_positions_it_is_not_permutation_equivariant(scheme: str) -> None:
    module, packed_ids, x = build(scheme), one_sentence(2, 6), normal(2, 6, D)
    attention_mask = make_mask(packed_ids, packed_ids)
    assert not torch.allclose(module(x.flip(1), attention_mask), module(x, attention_mask).flip(1))


@pytest.mark.parametrize("scheme", ["relative", "relative-values", "rotary"])
def test_only_distances_matter_inside_attention(scheme: str) -> None:
    module, x, position = build(scheme), normal(1, 6, D), torch.arange(6)[None]
    near, far = AttentionMask(position, position), AttentionMask(position + 100, position + 100)
    assert_close(module(x, near), module(x, far), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fused_equals_explicit_under_bfloat16_autocast(scheme: str) -> None:
    module, packed_ids, x = build(scheme).float(), random_positions(9, 2, 8), torch.randn(2, 8, D)
    attention_mask = make_mask(packed_ids, packed_ids, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = module(x, attention_mask)
        with record(module, "weights"):
            explicit = module(x, attention_mask)
    assert_close(fused.float(), explicit.float(), rtol=2e-2, atol=2e-2)
    assert_close(fused.float(), module(x, attention_mask), rtol=5e-2, atol=5e-2)


def test_indivisible_widths_are_refused() -> None:
    with pytest.raises(AssertionError, match="d_model 6 is not a multiple of n_heads 4"):
        MultiHeadAttention(6, 4)
    with pytest.raises(AssertionError, match="d_model 6 is not a multiple of n_heads 4"):
        MultiHeadAttention(6, 4, d_key=3)
    assert MultiHeadAttention(6, 4, d_key=3, d_value=2).output.in_features == 8


def test_query_key_and_value_taps_have_one_slice_per_head() -> None:
    module, packed_ids, x = build("none", 4, 5), one_sentence(2, 3), normal(2, 3, D)
    with record(module, "*") as recorded:
        module(x, make_mask(packed_ids, packed_ids))
    query, key, value = module.projection(x).split([H * 4, H * 4, H * 5], dim=-1)
    for name, whole, width in (("query", query, 4), ("key", key, 4), ("value", value, 5)):
        for head in range(H):
            assert_close(recorded[name][:, head], whole[..., head * width : (head + 1) * width], rtol=0, atol=0)


def test_key_values_of_selected_rows() -> None:
    encoded = KeyValue(normal(3, H, 4, 2), normal(3, H, 4, 5))
    chosen = encoded.select(torch.tensor([2, 0, 2]))
    assert torch.equal(chosen.key, encoded.key[[2, 0, 2]])
    assert torch.equal(chosen.value, encoded.value[[2, 0, 2]])
