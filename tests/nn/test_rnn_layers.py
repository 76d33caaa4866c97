"""Recurrent layers against torch's own over packed sequences, what padding cannot change, and input feeding."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from drawing import CELLS, B, D, H, T, drawn, stirred
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from regard.nn import (
    GRU,
    LSTM,
    AdditiveAttention,
    AttentionalDecoderLayer,
    AttentionMask,
    BilinearAttention,
    DotAttention,
    InputFeedingDecoderStack,
    KeyValue,
    RecurrentCrossAttention,
    RecurrentDecoderLayer,
    RecurrentEncoderLayer,
    RNNBase,
    edit,
    record,
    reverse_sequences,
    taps,
)
from regard.nn.rnn import RNNState

LENGTHS = torch.tensor([6, 1, 4, 3])


def test_texts_are_reversed_within_their_lengths() -> None:
    x = torch.arange(8.0).view(2, 4, 1)
    assert reverse_sequences(x, torch.tensor([3, 4])).flatten().tolist() == [2, 1, 0, 3, 7, 6, 5, 4]
    assert_close(reverse_sequences(reverse_sequences(x, torch.tensor([1, 2])), torch.tensor([1, 2])), x)
    assert_close(reverse_sequences(x, torch.tensor([0, 1])), x)


@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_are_torch_s_over_packed_sequences(cell: type[RNNBase]) -> None:
    layer = stirred(RecurrentEncoderLayer(cell(D, H), cell(D, H), 0.0))
    theirs = cell.Cell(D, H, batch_first=True, bidirectional=True).double()
    for direction, suffix in ((layer.forward_rnn, ""), (layer.backward_rnn, "_reverse")):
        for name, weight in direction.cell.named_parameters():
            getattr(theirs, f"{name}{suffix}").data.copy_(weight)
    x = drawn(B, T, D)
    packed, last = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    found = layer(x, LENGTHS)
    there = torch.arange(T) < LENGTHS[:, None]
    assert_close(found[there], expected[there])
    hidden = last[0] if isinstance(last, tuple) else last
    assert_close(layer.final_outputs(found, LENGTHS), torch.cat((hidden[0], hidden[1]), -1))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("directions", ["both", "ahead", "back"])
def test_what_stands_behind_a_text_changes_nothing(cell: type[RNNBase], directions: str) -> None:
    ahead, back = (cell(D, H) if directions in ("both", name) else None for name in ("ahead", "back"))
    layer, x = stirred(RecurrentEncoderLayer(ahead, back, 0.0)), drawn(B, T, D)
    there = torch.arange(T) < LENGTHS[:, None]
    other = torch.where(there[..., None], x, drawn(B, T, D, seed=9))
    one, two = layer(x, LENGTHS), layer(other, LENGTHS)
    assert_close(one[there], two[there], rtol=0, atol=0)
    assert_close(layer.final_outputs(one, LENGTHS), layer.final_outputs(two, LENGTHS), rtol=0, atol=0)
    for row, length in enumerate(LENGTHS.tolist()):
        assert_close(layer(x[row : row + 1, :length], LENGTHS[row : row + 1])[0], one[row, :length])


PARTS = ("query", "weights", "mixed")
SCORERS = {
    "additive": lambda: AdditiveAttention(H, H, 4),
    "dot": DotAttention,
    "general": lambda: BilinearAttention(H, H),
}


@pytest.mark.parametrize("name", SCORERS)
def test_a_state_attention_is_that_attention_through_its_output(name: str) -> None:
    module = stirred(RecurrentCrossAttention(SCORERS[name](), H, D))
    query, source = drawn(B, 2, H), drawn(B, T, H, seed=2)
    there = torch.arange(T) < LENGTHS[:, None]
    sight = AttentionMask(torch.zeros(B, 2), torch.zeros(B, T), there[:, None, None])
    memory = module.project_kv(source)
    with record(module, "*") as heard:
        found = module.cross_attend(query, memory, sight)
    assert_close(found, module.output(module.scorer(query, source, source, sight)))
    assert heard["weights"].shape == (B, 1, 2, T)
    assert not heard["weights"][~there[:, None, None].expand(-1, -1, 2, -1)].any()
    assert [each for each in taps(module) if "weights" in each] == ["weights"]
    one_by_one = [module.cross_attend(query[:, i : i + 1], memory, sight) for i in range(2)]
    assert_close(found, torch.cat(one_by_one, 1))
    factors = module.bilinear_factors(0)
    if name == "general":
        expected = query @ (factors[0].T @ factors[1]) @ source.mT
        assert_close(module.scorer.score(query, source), expected)
    else:
        assert factors is None


def test_several_continuations_of_a_text_look_at_it_side_by_side() -> None:
    module = stirred(RecurrentCrossAttention(AdditiveAttention(H, H, 4), H, D))
    query, source = drawn(6, 1, H), drawn(2, T, H, seed=2)
    sight = AttentionMask(torch.zeros(2, 1), torch.zeros(2, T))
    found = module.cross_attend(query, module.project_kv(source), sight)
    again = module.cross_attend(query, module.project_kv(source.repeat_interleave(3, 0)), sight)
    assert_close(found, again)


def fed(cell: type[RNNBase]) -> InputFeedingDecoderStack:
    attention = RecurrentCrossAttention(AdditiveAttention(H, H, 4), H, H)
    layers = [RecurrentDecoderLayer(cell(2 * H, H), 0.0), AttentionalDecoderLayer(cell(H, H), attention, 0.0)]
    return stirred(InputFeedingDecoderStack(layers))


@pytest.mark.parametrize("cell", CELLS)
def test_with_input_feeding_one_pass_is_one_token_at_a_time(cell: type[RNNBase]) -> None:
    decoder, x, source = fed(cell), drawn(B, T, H), drawn(B, T, H, seed=2)
    memory, sight = decoder[-1].cross_attention.project_kv(source), AttentionMask(torch.zeros(B, 1), torch.zeros(B, T))
    begin = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * cell.n_states] * 2)
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
    memory, sight = decoder[-1].cross_attention.project_kv(source), AttentionMask(torch.zeros(B, 1), torch.zeros(B, T))
    begin = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * 2] * 2)

    def first_alone(weights: Tensor) -> Tensor:
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    with edit(decoder, "1.cross_attention.weights", first_alone):
        found = decoder(x, begin, memory, sight)[0]
    only = decoder[-1].cross_attention.project_kv(source[:, :1])
    assert_close(found, decoder(x, begin, only, AttentionMask(torch.zeros(B, 1), torch.zeros(B, 1)))[0])


def whole_text(decoder: InputFeedingDecoderStack) -> tuple[list[RNNState], KeyValue, AttentionMask]:
    """All that the decoder needs beside the tokens: what it begins with, the source, and that all of it is seen."""
    n_states = decoder[0].rnn.n_states
    begin = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * n_states] * 2)
    memory = decoder[-1].cross_attention.project_kv(drawn(B, T, H, seed=2))
    return begin, memory, AttentionMask(torch.zeros(B, 1), torch.zeros(B, T))


FLOWING = ["0.rnn.drive", "0.out", "1.rnn.drive", *(f"1.cross_attention.{x}" for x in PARTS), "1.out"]


@pytest.mark.parametrize("name", FLOWING)
@pytest.mark.parametrize("cell", CELLS)
def test_an_edit_with_input_feeding_is_one_of_every_token_in_turn(cell: type[RNNBase], name: str) -> None:
    decoder, x = fed(cell), drawn(B, T, H)
    state, memory, sight = whole_text(decoder)
    plain, shapes = decoder(x, state, memory, sight)[0], set()

    def bent(flowing: Tensor) -> Tensor:
        shapes.add(flowing.shape[-2])
        return flowing.square()

    with edit(decoder, name, bent), record(decoder, name) as heard:
        found, after = decoder(x, state, memory, sight)
    assert shapes == {T}  # nobody but who steps sees less than the whole text
    for place in range(T):
        with edit(decoder, name, torch.square), record(decoder, name) as one:
            written, state = decoder(x[:, place : place + 1], state, memory, sight)
        assert_close(written[:, 0], found[:, place])
        assert_close(one[name][..., 0, :], heard[name][..., place, :])
    assert_close(after, state)
    assert (found - plain).abs().amax((0, 2)).min() > 1e-6


def test_with_input_feeding_a_text_flows_through_each_tap_once_where_nobody_changes_it() -> None:
    decoder, x, heard = fed(LSTM), drawn(B, T, H), []
    plain = decoder(x, *whole_text(decoder))[0]
    with ExitStack() as listening:
        for name in FLOWING:
            listening.enter_context(edit(decoder, name, lambda flowing, name=name: heard.append(name) or flowing))
        assert_close(decoder(x, *whole_text(decoder))[0], plain)
    assert heard == FLOWING
    assert not any(tap.active for tap in taps(decoder).values())


def test_with_input_feeding_what_leaves_a_layer_can_be_replaced() -> None:
    decoder, x = fed(GRU), drawn(B, T, H)
    with record(decoder, "0.out") as heard:
        plain = decoder(x, *whole_text(decoder))[0]
    other = heard["0.out"].clone()
    other[:, 2] += 1
    with edit(decoder, "0.out", lambda _: heard["0.out"]):
        assert_close(decoder(x, *whole_text(decoder))[0], plain)
    with edit(decoder, "0.out", lambda _: other):
        changed = (decoder(x, *whole_text(decoder))[0] - plain).abs().amax((0, 2))
    assert_close(changed[:2], torch.zeros(2, dtype=torch.float64))
    assert changed[2:].min() > 1e-6
