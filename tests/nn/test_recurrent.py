"""Recurrence against torch's own over packed sequences, against itself step by step, and what padding cannot change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from regard.nn import (
    GRU,
    LSTM,
    AdditiveAttention,
    AttentiveLayer,
    BilinearAttention,
    DotAttention,
    FedDecoder,
    Recurrence,
    RecurrentDecoderLayer,
    RecurrentLayer,
    Sight,
    StateAttention,
    edit,
    record,
    reversed_texts,
    step_by_step,
    taps,
)

CELLS = [LSTM, GRU]
B, T, D, H = 4, 6, 5, 3
LENGTHS = torch.tensor([6, 1, 4, 3])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stirred(module: nn.Module) -> nn.Module:
    """In float64, every parameter drawn."""
    generator = torch.Generator().manual_seed(1)
    module.double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return module


def test_texts_are_reversed_within_their_lengths() -> None:
    x = torch.arange(8.0).view(2, 4, 1)
    assert reversed_texts(x, torch.tensor([3, 4])).flatten().tolist() == [2, 1, 0, 3, 7, 6, 5, 4]
    assert_close(reversed_texts(reversed_texts(x, torch.tensor([1, 2])), torch.tensor([1, 2])), x)
    assert_close(reversed_texts(x, torch.tensor([0, 1])), x)


@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_are_torch_s_over_packed_sequences(cell: type[Recurrence]) -> None:
    layer = stirred(RecurrentLayer(cell(D, H), cell(D, H), 0.0))
    theirs = cell.Cell(D, H, batch_first=True, bidirectional=True).double()
    for direction, suffix in ((layer.ahead, ""), (layer.back, "_reverse")):
        for name, weight in direction.cell.named_parameters():
            getattr(theirs, f"{name}{suffix}").data.copy_(weight)
    x = drawn(B, T, D)
    packed, last = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    found = layer(x, LENGTHS)
    there = torch.arange(T) < LENGTHS[:, None]
    assert_close(found[there], expected[there])
    hidden = last[0] if isinstance(last, tuple) else last
    assert_close(layer.last(found, LENGTHS), torch.cat((hidden[0], hidden[1]), -1))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("directions", ["both", "ahead", "back"])
def test_what_stands_behind_a_text_changes_nothing(cell: type[Recurrence], directions: str) -> None:
    ahead, back = (cell(D, H) if directions in ("both", name) else None for name in ("ahead", "back"))
    layer, x = stirred(RecurrentLayer(ahead, back, 0.0)), drawn(B, T, D)
    there = torch.arange(T) < LENGTHS[:, None]
    other = torch.where(there[..., None], x, drawn(B, T, D, seed=9))
    one, two = layer(x, LENGTHS), layer(other, LENGTHS)
    assert_close(one[there], two[there], rtol=0, atol=0)
    assert_close(layer.last(one, LENGTHS), layer.last(two, LENGTHS), rtol=0, atol=0)
    for row, length in enumerate(LENGTHS.tolist()):
        assert_close(layer(x[row : row + 1, :length], LENGTHS[row : row + 1])[0], one[row, :length])


@pytest.mark.parametrize("cell", CELLS)
def test_fused_is_step_by_step_in_numbers_and_gradients(cell: type[Recurrence]) -> None:
    recurrence = stirred(cell(D, H))
    x = drawn(B, T, D).requires_grad_()
    begin = tuple(drawn(B, H, seed=part) for part in range(cell.n_states))
    found = []
    for listening in (False, True):
        if listening:
            with step_by_step(recurrence):
                read, state = recurrence(x, begin)
        else:
            read, state = recurrence(x, begin)
        weights = [x, *recurrence.parameters()]
        found.append([read, *state, *torch.autograd.grad(read.sin().sum() + state[-1].sum(), weights)])
    assert_close(*found)
    assert not recurrence.drive.heard


@pytest.mark.parametrize("cell", CELLS)
def test_going_on_from_a_state_is_going_on(cell: type[Recurrence]) -> None:
    recurrence, x = stirred(cell(D, H)), drawn(B, T, D)
    whole, after = recurrence(x)
    first, state = recurrence(x[:, :2])
    second, state = recurrence(x[:, 2:], state)
    assert_close(torch.cat((first, second), 1), whole)
    assert_close(state, after)


@pytest.mark.parametrize("cell", CELLS)
def test_step_by_step_it_has_forward_derivatives_of_many_directions(cell: type[Recurrence]) -> None:
    layer, x = stirred(RecurrentLayer(cell(D, H), cell(D, H), 0.0)), drawn(1, T, D)
    directions, length = drawn(7, 1, T, D, seed=3), torch.tensor([4])
    with step_by_step(layer), torch.enable_grad():
        found = vmap(lambda d: jvp(lambda x: layer(x, length), (x,), (d,))[1])(directions)
    near = [(layer(x + 1e-6 * d, length) - layer(x - 1e-6 * d, length)) / 2e-6 for d in directions]
    assert_close(found, torch.stack(near), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cell", CELLS)
def test_on_no_device_it_has_the_shapes_and_the_work(cell: type[Recurrence]) -> None:
    """Planning must not go through every step."""
    with torch.device("meta"):
        recurrence, x = cell(D, H), torch.empty(B, T, D, requires_grad=True)
    gates = 4 if cell is LSTM else 3
    with FlopCounterMode(display=False) as counter:
        read, state = recurrence(x)
        read.sum().backward()
    assert (read.shape, [part.shape for part in state]) == ((B, T, H), [(B, H)] * cell.n_states)
    assert counter.get_total_flops() == 3 * 2 * B * T * gates * H * (D + H)


@pytest.mark.parametrize("cell", CELLS)
def test_it_runs_on_a_narrower_copy_of_its_weights(cell: type[Recurrence]) -> None:
    recurrence = cell(D, H)
    narrow = {name: weight.bfloat16() for name, weight in recurrence.named_parameters()}
    read, _ = functional_call(recurrence, narrow, (torch.randn(B, T, D).bfloat16(),))
    assert read.dtype == torch.bfloat16
    zero = {name: 0 * weight for name, weight in recurrence.named_parameters()}
    assert not functional_call(recurrence, zero, (torch.randn(B, T, D),))[0].any()


SCORERS = {
    "additive": lambda: AdditiveAttention(H, H, 4),
    "dot": DotAttention,
    "general": lambda: BilinearAttention(H, H),
}


@pytest.mark.parametrize("name", SCORERS)
def test_a_state_attention_is_that_attention_through_its_output(name: str) -> None:
    module = stirred(StateAttention(SCORERS[name](), H, D))
    query, source = drawn(B, 2, H), drawn(B, T, H, seed=2)
    there = torch.arange(T) < LENGTHS[:, None]
    sight = Sight(torch.zeros(B, 2), torch.zeros(B, T), there[:, None, None])
    memory = module.remember(source)
    with record(module, "*") as heard:
        found = module.cross(query, memory, sight)
    assert_close(found, module.output(module.scorer(query, source, source, sight)))
    assert heard["weights"].shape == (B, 1, 2, T)
    assert not heard["weights"][~there[:, None, None].expand(-1, -1, 2, -1)].any()
    assert [each for each in taps(module) if "weights" in each] == ["weights"]
    one_by_one = [module.cross(query[:, i : i + 1], memory, sight) for i in range(2)]
    assert_close(found, torch.cat(one_by_one, 1))
    factors = module.factors(0)
    if name == "general":
        expected = query @ (factors[0].T @ factors[1]) @ source.mT
        assert_close(module.scorer.score(query, source), expected)
    else:
        assert factors is None


def test_several_continuations_of_a_text_look_at_it_side_by_side() -> None:
    module = stirred(StateAttention(AdditiveAttention(H, H, 4), H, D))
    query, source = drawn(6, 1, H), drawn(2, T, H, seed=2)
    sight = Sight(torch.zeros(2, 1), torch.zeros(2, T))
    found = module.cross(query, module.remember(source), sight)
    again = module.cross(query, module.remember(source.repeat_interleave(3, 0)), sight)
    assert_close(found, again)


def fed(cell: type[Recurrence]) -> FedDecoder:
    attention = StateAttention(AdditiveAttention(H, H, 4), H, H)
    layers = [RecurrentDecoderLayer(cell(2 * H, H), 0.0), AttentiveLayer(cell(H, H), attention, 0.0)]
    return stirred(FedDecoder(layers))


@pytest.mark.parametrize("cell", CELLS)
def test_with_input_feeding_one_pass_is_one_token_at_a_time(cell: type[Recurrence]) -> None:
    decoder, x, source = fed(cell), drawn(B, T, H), drawn(B, T, H, seed=2)
    memory, sight = decoder[-1].cross_attention.remember(source), Sight(torch.zeros(B, 1), torch.zeros(B, T))
    begin = decoder.begin([(torch.zeros(B, H, dtype=torch.float64),) * cell.n_states] * 2)
    with record(decoder, "1.cross_attention.weights", "0.out", "1.out") as heard:
        whole, after = decoder(x, begin, memory, sight)
    assert_close(heard["1.out"], whole)
    assert (heard["0.out"].shape, heard["1.cross_attention.weights"].shape) == ((B, T, H), (B, 1, T, T))
    state = begin
    for place in range(T):
        with record(decoder, "1.cross_attention.weights") as one:
            written, state = decoder(x[:, place : place + 1], state, memory, sight)
        assert_close(written[:, 0], whole[:, place])
        assert_close(one["1.cross_attention.weights"][:, :, 0], heard["1.cross_attention.weights"][:, :, place])
    assert_close(state, after)
    assert_close(decoder(x, begin, memory, sight)[0], whole)
    fed_back = decoder(x, [*begin[:-1], (begin[-1][0] + 1,)], memory, sight)[0]
    assert (fed_back[:, -1] - whole[:, -1]).abs().max() > 1e-4


def test_an_edit_of_weights_is_fed_back_too() -> None:
    decoder, x, source = fed(LSTM), drawn(B, T, H), drawn(B, T, H, seed=2)
    memory, sight = decoder[-1].cross_attention.remember(source), Sight(torch.zeros(B, 1), torch.zeros(B, T))
    begin = decoder.begin([(torch.zeros(B, H, dtype=torch.float64),) * 2] * 2)

    def first_alone(weights: Tensor) -> Tensor:
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    with edit(decoder, "1.cross_attention.weights", first_alone):
        found = decoder(x, begin, memory, sight)[0]
    only = decoder[-1].cross_attention.remember(source[:, :1])
    assert_close(found, decoder(x, begin, only, Sight(torch.zeros(B, 1), torch.zeros(B, 1)))[0])
