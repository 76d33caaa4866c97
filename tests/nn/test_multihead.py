"""Multi-head attention against a triple loop, against torch.nn, and its two paths against each other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import reference
import torch
from reference import Scheme, array, one_sentence, random_place, seen
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
        case RelativePositions(keys=keys, values=values, max_distance=most):
            return reference.relative(array(keys.weight), None if values is None else array(values.weight), most)
    return Scheme()


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def gradients(out: Tensor, of: list[Tensor]) -> tuple[Tensor, ...]:
    direction = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(7))
    return torch.autograd.grad((out * direction).sum(), of)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("d_key", "d_value"), WIDTHS)
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_the_definition(scheme: str, d_key: int | None, d_value: int | None, causal: bool) -> None:
    torch.manual_seed(0)
    module, place, x = build(scheme, d_key, d_value), random_place(5, 2, 8), normal(2, 8, D)
    sight, allowed = make_mask(place, place, causal=causal), seen(place, place, causal=causal)
    fused = module(x, sight)
    with record(module, "weights") as recorded:
        explicit = module(x, sight)
    for row in range(2):
        position = place.position[row].numpy()
        weights, out = reference.multi_head(
            module, array(x[row]), array(x[row]), allowed[row], (position, position), definition(module)
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-11, atol=1e-13)
        assert_close(array(fused[row]), out, rtol=1e-11, atol=1e-13)
        assert_close(array(explicit[row]), out, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("d_key", "d_value"), WIDTHS)
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 7), (7, 3)])
def test_cross_attention_is_the_definition(d_key: int | None, d_value: int | None, n_queries: int, n_keys: int) -> None:
    torch.manual_seed(1)
    module = build("none", d_key, d_value)
    at, of = random_place(2, 3, n_queries), random_place(3, 3, n_keys)
    x, memory = normal(3, n_queries, D), normal(3, n_keys, D)
    kept = module.project_kv(memory, of.position)
    fused = module.cross_attend(x, kept, make_mask(at, of))
    with record(module, "weights") as recorded:
        explicit = module.cross_attend(x, kept, make_mask(at, of))
    allowed = seen(at, of, causal=False)
    for row in range(3):
        weights, out = reference.multi_head(
            module,
            array(x[row]),
            array(memory[row]),
            allowed[row],
            (at.position[row].numpy(), of.position[row].numpy()),
            Scheme(),
        )
        assert_close(array(recorded["weights"][row]), weights, rtol=1e-11, atol=1e-13)
        assert_close(array(fused[row]), out, rtol=1e-11, atol=1e-13)
        assert_close(array(explicit[row]), out, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_that_of_torch(causal: bool) -> None:
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
    place, x = one_sentence(2, 7), normal(2, 7, D)
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    expected, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    sight = make_mask(place, place, causal=causal)
    assert_close(ours(x, sight), expected, rtol=1e-11, atol=1e-13)
    with record(ours, "weights") as recorded:
        ours(x, sight)
    assert_close(recorded["weights"], weights, rtol=1e-11, atol=1e-13)


def test_cross_attention_is_that_of_torch_with_padding() -> None:
    torch.manual_seed(3)
    theirs, ours = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64), build()
    with torch.no_grad():
        ours.projection.weight.copy_(theirs.in_proj_weight)
        ours.projection.bias.copy_(theirs.in_proj_bias.normal_())
        ours.output.load_state_dict(theirs.out_proj.state_dict())
    x, memory = normal(2, 4, D), normal(2, 6, D)
    padded = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    source = PackedPositions((~padded).int(), torch.arange(6).expand(2, -1))
    expected, _ = theirs(x, memory, memory, key_padding_mask=padded)
    got = ours.cross_attend(x, ours.project_kv(memory, source.position), make_mask(one_sentence(2, 4), source))
    assert_close(got, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
def test_fused_equals_explicit(scheme: str, causal: bool, train: bool, dtype: torch.dtype, tolerance: float) -> None:
    """The parity of SPEC 1.10 in every mode: outputs and gradients, packed rows and full ones."""
    torch.manual_seed(4)
    module = build(scheme, 4, 5).to(dtype).train(train)
    for place in (random_place(6, 3, 12), one_sentence(3, 12)):
        x, sight = normal(3, 12, D, dtype=dtype), make_mask(place, place, causal=causal)
        fused = module(x, sight)
        with record(module, "weights") as recorded:
            explicit = module(x, sight)
        assert recorded["weights"].shape == (3, H, 12, 12)
        assert_close(fused, explicit, rtol=tolerance, atol=tolerance)
        of = [x, *module.parameters()]
        assert_close(gradients(fused, of), gradients(explicit, of), rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_sight_is_the_sight_of_one_full_sentence(scheme: str) -> None:
    module, place, x = build(scheme), one_sentence(2, 5), normal(2, 5, D)
    unmasked = AttentionMask(place.position, place.position)
    assert_close(module(x, unmasked), module(x, make_mask(place, place)), rtol=1e-12, atol=1e-14)
    with record(module, "weights"):
        assert_close(module(x, unmasked), module(x, make_mask(place, place)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("heard", [False, True])
def test_nothing_to_attend_to_gives_zeros_and_finite_gradients(scheme: str, heard: bool) -> None:
    module = build(scheme)
    empty = PackedPositions(torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32))
    x = normal(2, 4, D)
    sight = make_mask(empty, empty)
    if heard:
        with record(module, "weights") as recorded:
            out = module(x, sight)
        assert (recorded["weights"] == 0).all()
    else:
        out = module(x, sight)
    assert_close(out, module.output.bias.expand_as(out), rtol=0, atol=0)  # zeros through the output projection
    out.sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()
    assert module.projection.weight.grad is not None
    assert (module.projection.weight.grad == 0).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_are_right(scheme: str) -> None:
    torch.manual_seed(5)
    module, place = build(scheme), random_place(8, 1, 4)
    assert (place.segment > 0).any()
    sight, x = make_mask(place, place, causal=True), normal(1, 4, D)
    assert torch.autograd.gradcheck(lambda x: module(x, sight), (x,))
    with record(module, "weights"):
        assert torch.autograd.gradcheck(lambda x: module(x, sight), (x,))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_future_cannot_change_the_past(scheme: str) -> None:
    module, place, x = build(scheme), one_sentence(1, 8), normal(1, 8, D)
    sight = make_mask(place, place, causal=True)
    other = torch.cat((x[:, :5], torch.randn(1, 3, D, dtype=torch.float64)), 1)
    assert_close(module(other, sight)[:, :5], module(x, sight)[:, :5], rtol=0, atol=1e-15)
    assert not torch.allclose(module(other, sight)[:, 5:], module(x, sight)[:, 5:])


def test_recorded_causal_weights_are_zero_right_of_the_diagonal() -> None:
    module, place = build(), one_sentence(1, 4)
    with record(module, "weights") as recorded:
        module(normal(1, 4, D), make_mask(place, place, causal=True))
    weights = recorded["weights"]
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    assert (weights.tril().sum(-1) - 1).abs().max() < 1e-14
    assert (weights[..., torch.tril(torch.ones(4, 4, dtype=torch.bool))] > 0).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("causal", [False, True])
def test_other_segments_change_nothing_and_packed_is_one_by_one(scheme: str, causal: bool) -> None:
    torch.manual_seed(6)
    module = build(scheme, 4, 3)
    sentences = [torch.randn(1, n, D, dtype=torch.float64) for n in (4, 1, 3)]
    segment = torch.tensor([[1, 1, 1, 1, 2, 3, 3, 3, 0, 0]])
    position = torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2, 0, 0]])
    packed = torch.cat((*sentences, torch.randn(1, 2, D, dtype=torch.float64)), 1)
    place = PackedPositions(segment, position)
    together = module(packed, make_mask(place, place, causal=causal))
    for number, sentence in enumerate(sentences, 1):
        place = one_sentence(1, sentence.shape[1])
        alone = module(sentence, make_mask(place, place, causal=causal))
        assert_close(together[segment == number][None], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("heard", [False, True])
def test_sentences_of_given_lengths_are_those_of_the_mask(scheme: str, heard: bool) -> None:
    torch.manual_seed(6)
    module, lengths = build(scheme, 4, 3), (3, 3, 1, 4, 3)
    segment = torch.tensor([[number for number, length in enumerate(lengths, 1) for _ in range(length)]])
    place = PackedPositions(segment, torch.tensor([[place for length in lengths for place in range(length)]]))
    x = normal(1, sum(lengths), D)
    with record(module, "weights") if heard else nullcontext():
        apart = module(x, AttentionMask(place.position, place.position, lengths=lengths))
        masked = module(x, make_mask(place, place))
    assert_close(apart, masked, rtol=1e-12, atol=1e-14)
    of = [x, *module.parameters()]
    assert_close(gradients(apart, of), gradients(masked, of), rtol=1e-10, atol=1e-12)


def test_without_positions_it_is_permutation_equivariant() -> None:
    module, place, x = build("none"), one_sentence(2, 6), normal(2, 6, D)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    sight = make_mask(place, place)
    assert_close(module(x[:, order], sight), module(x, sight)[:, order], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "none"])
def test_with_positions_it_is_not(scheme: str) -> None:
    module, place, x = build(scheme), one_sentence(2, 6), normal(2, 6, D)
    sight = make_mask(place, place)
    assert not torch.allclose(module(x.flip(1), sight), module(x, sight).flip(1))


@pytest.mark.parametrize("scheme", ["relative", "relative-values", "rotary"])
def test_only_distances_matter_inside_attention(scheme: str) -> None:
    module, x, position = build(scheme), normal(1, 6, D), torch.arange(6)[None]
    near, far = AttentionMask(position, position), AttentionMask(position + 100, position + 100)
    assert_close(module(x, near), module(x, far), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fused_equals_explicit_under_bfloat16_autocast(scheme: str) -> None:
    module, place, x = build(scheme).float(), random_place(9, 2, 8), torch.randn(2, 8, D)
    sight = make_mask(place, place, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = module(x, sight)
        with record(module, "weights"):
            explicit = module(x, sight)
    assert_close(fused.float(), explicit.float(), rtol=2e-2, atol=2e-2)
    assert_close(fused.float(), module(x, sight), rtol=5e-2, atol=5e-2)


def test_widths_that_do_not_divide_fail_saying_so() -> None:
    with pytest.raises(AssertionError, match="d_model 6 is not a multiple of n_heads 4"):
        MultiHeadAttention(6, 4)
    with pytest.raises(AssertionError, match="d_model 6 is not a multiple of n_heads 4"):
        MultiHeadAttention(6, 4, d_key=3)
    assert MultiHeadAttention(6, 4, d_key=3, d_value=2).output.in_features == 8


def test_taps_of_queries_keys_and_values_hear_each_head() -> None:
    module, place, x = build("none", 4, 5), one_sentence(2, 3), normal(2, 3, D)
    with record(module, "*") as recorded:
        module(x, make_mask(place, place))
    query, key, value = module.projection(x).split([H * 4, H * 4, H * 5], dim=-1)
    for name, whole, width in (("query", query, 4), ("key", key, 4), ("value", value, 5)):
        for head in range(H):
            assert_close(recorded[name][:, head], whole[..., head * width : (head + 1) * width], rtol=0, atol=0)


def test_memory_of_selected_rows() -> None:
    memory = KeyValue(normal(3, H, 4, 2), normal(3, H, 4, 5))
    chosen = memory.select(torch.tensor([2, 0, 2]))
    assert torch.equal(chosen.key, memory.key[[2, 0, 2]])
    assert torch.equal(chosen.value, memory.value[[2, 0, 2]])
