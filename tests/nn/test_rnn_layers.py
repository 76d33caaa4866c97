"""Recurrent layers against torch over packed sequences, invariance to padding, and input feeding."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from drawing import CELLS, B, D, H, T, random_tensor, randomise_weights
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
    ProjectedAttention,
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


def test_sequences_are_reversed_within_their_lengths() -> None:
    x = torch.arange(8.0).view(2, 4, 1)
    assert reverse_sequences(x, torch.tensor([3, 4])).flatten().tolist() == [2, 1, 0, 3, 7, 6, 5, 4]
    assert_close(reverse_sequences(reverse_sequences(x, torch.tensor([1, 2])), torch.tensor([1, 2])), x)
    assert_close(reverse_sequences(x, torch.tensor([0, 1])), x)


@pytest.mark.parametrize("cell", CELLS)
def test_bidirectional_layer_equals_torch_over_packed_sequences(cell: type[RNNBase]) -> None:
    layer = randomise_weights(RecurrentEncoderLayer(cell(D, H), cell(D, H), 0.0))
    theirs = cell.Cell(D, H, batch_first=True, bidirectional=True).double()
    for direction, suffix in ((layer.forward_rnn, ""), (layer.backward_rnn, "_reverse")):
        for name, weight in direction.cell.named_parameters():
            getattr(theirs, f"{name}{suffix}").data.copy_(weight)
    x = random_tensor(B, T, D)
    packed, last = theirs(pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    result = layer(x, LENGTHS)
    token_mask = torch.arange(T) < LENGTHS[:, None]
    assert_close(result[token_mask], expected[token_mask])
    hidden = last[0] if isinstance(last, tuple) else last
    assert_close(layer.final_outputs(result, LENGTHS), torch.cat((hidden[0], hidden[1]), -1))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("directions", ["both", "forward", "backward"])
def test_padding_does_not_change_outputs(cell: type[RNNBase], directions: str) -> None:
    rnns = (cell(D, H) if directions in ("both", name) else None for name in ("forward", "backward"))
    layer, x = randomise_weights(RecurrentEncoderLayer(*rnns, 0.0)), random_tensor(B, T, D)
    token_mask = torch.arange(T) < LENGTHS[:, None]
    other = torch.where(token_mask[..., None], x, random_tensor(B, T, D, seed=9))
    one, two = layer(x, LENGTHS), layer(other, LENGTHS)
    assert_close(one[token_mask], two[token_mask], rtol=0, atol=0)
    assert_close(layer.final_outputs(one, LENGTHS), layer.final_outputs(two, LENGTHS), rtol=0, atol=0)
    for row, length in enumerate(LENGTHS.tolist()):
        assert_close(layer(x[row : row + 1, :length], LENGTHS[row : row + 1])[0], one[row, :length])


ATTENTION_TAPS = ("query", "weights", "mixed")
SCORERS = {
    "additive": lambda: AdditiveAttention(H, H, 4),
    "dot": DotAttention,
    "general": lambda: BilinearAttention(H, H),
    "scaled": lambda: ProjectedAttention(H, H, H, 5),
}


@pytest.mark.parametrize("name", SCORERS)
def test_recurrent_cross_attention_equals_its_scorer_and_projection(name: str) -> None:
    module = randomise_weights(RecurrentCrossAttention(SCORERS[name](), H, D))
    query, source = random_tensor(B, 2, H), random_tensor(B, T, H, seed=2)
    token_mask = torch.arange(T) < LENGTHS[:, None]
    attention_mask = AttentionMask(torch.zeros(B, 2), torch.zeros(B, T), token_mask[:, None, None])
    kv = module.project_kv(source)
    with record(module, "*") as recorded:
        result = module.cross_attend(query, kv, attention_mask)
    assert_close(result, module.output(module.scorer(query, source, source, attention_mask)))
    assert recorded["weights"].shape == (B, 1, 2, T)
    assert not recorded["weights"][~token_mask[:, None, None].expand(-1, -1, 2, -1)].any()
    assert [each for each in taps(module) if "weights" in each] == ["weights"]
    one_by_one = [module.cross_attend(query[:, i : i + 1], kv, attention_mask) for i in range(2)]
    assert_close(result, torch.cat(one_by_one, 1))
    factors = module.bilinear_factors(0)
    if name in ("general", "scaled"):
        expected = query @ (factors[0].T @ factors[1]) @ source.mT
        scale = len(factors[0]) ** -0.5 if name == "scaled" else 1.0
        assert_close(module.scorer.score(query, source), scale * expected)
    else:
        assert factors is None


def test_beams_of_a_text_share_its_keys() -> None:
    module = randomise_weights(RecurrentCrossAttention(AdditiveAttention(H, H, 4), H, D))
    query, source = random_tensor(6, 1, H), random_tensor(2, T, H, seed=2)
    attention_mask = AttentionMask(torch.zeros(2, 1), torch.zeros(2, T))
    result = module.cross_attend(query, module.project_kv(source), attention_mask)
    again = module.cross_attend(query, module.project_kv(source.repeat_interleave(3, 0)), attention_mask)
    assert_close(result, again)


def input_feeding_decoder(cell: type[RNNBase]) -> InputFeedingDecoderStack:
    attention = RecurrentCrossAttention(AdditiveAttention(H, H, 4), H, H)
    layers = [RecurrentDecoderLayer(cell(2 * H, H), 0.0), AttentionalDecoderLayer(cell(H, H), attention, 0.0)]
    return randomise_weights(InputFeedingDecoderStack(layers))


@pytest.mark.parametrize("cell", CELLS)
def test_input_feeding_stepwise_equals_one_pass(cell: type[RNNBase]) -> None:
    decoder, x, source = input_feeding_decoder(cell), random_tensor(B, T, H), random_tensor(B, T, H, seed=2)
    kv, attention_mask = (
        decoder[-1].cross_attention.project_kv(source),
        AttentionMask(torch.zeros(B, 1), torch.zeros(B, T)),
    )
    initial = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * cell.n_states] * 2)
    with record(decoder, "1.cross_attention.weights", "0.out", "1.out") as recorded:
        whole, after = decoder(x, initial, kv, attention_mask)
    assert_close(recorded["1.out"], whole)
    assert (recorded["0.out"].shape, recorded["1.cross_attention.weights"].shape) == ((B, T, H), (B, 1, T, T))
    state = initial
    for step in range(T):
        with record(decoder, "1.cross_attention.weights") as one:
            outputs, state = decoder(x[:, step : step + 1], state, kv, attention_mask)
        assert_close(outputs[:, 0], whole[:, step])
        assert_close(one["1.cross_attention.weights"][:, :, 0], recorded["1.cross_attention.weights"][:, :, step])
    assert_close(state, after)
    assert_close(decoder(x, initial, kv, attention_mask)[0], whole)
    fed_back = decoder(x, [*initial[:-1], (initial[-1][0] + 1,)], kv, attention_mask)[0]
    assert (fed_back[:, -1] - whole[:, -1]).abs().max() > 1e-4


def test_edited_attention_weights_are_fed_back() -> None:
    decoder, x, source = input_feeding_decoder(LSTM), random_tensor(B, T, H), random_tensor(B, T, H, seed=2)
    kv, attention_mask = (
        decoder[-1].cross_attention.project_kv(source),
        AttentionMask(torch.zeros(B, 1), torch.zeros(B, T)),
    )
    initial = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * 2] * 2)

    def first_alone(weights: Tensor) -> Tensor:
        return torch.zeros_like(weights).index_fill(-1, torch.tensor([0]), 1.0)

    with edit(decoder, "1.cross_attention.weights", first_alone):
        result = decoder(x, initial, kv, attention_mask)[0]
    only = decoder[-1].cross_attention.project_kv(source[:, :1])
    assert_close(result, decoder(x, initial, only, AttentionMask(torch.zeros(B, 1), torch.zeros(B, 1)))[0])


def whole_text(decoder: InputFeedingDecoderStack) -> tuple[list[RNNState], KeyValue, AttentionMask]:
    """Return initial states, source keys and values, and a mask that excludes nothing."""
    n_states = decoder[0].rnn.n_states
    initial = decoder.init_states([(torch.zeros(B, H, dtype=torch.float64),) * n_states] * 2)
    kv = decoder[-1].cross_attention.project_kv(random_tensor(B, T, H, seed=2))
    return initial, kv, AttentionMask(torch.zeros(B, 1), torch.zeros(B, T))


TAP_NAMES = ["0.rnn.drive", "0.out", "1.rnn.drive", *(f"1.cross_attention.{x}" for x in ATTENTION_TAPS), "1.out"]


@pytest.mark.parametrize("name", TAP_NAMES)
@pytest.mark.parametrize("cell", CELLS)
def test_edit_of_a_sequence_equals_edit_of_every_step(cell: type[RNNBase], name: str) -> None:
    decoder, x = input_feeding_decoder(cell), random_tensor(B, T, H)
    state, kv, attention_mask = whole_text(decoder)
    plain, shapes = decoder(x, state, kv, attention_mask)[0], set()

    def squared(activation: Tensor) -> Tensor:
        shapes.add(activation.shape[-2])
        return activation.square()

    with edit(decoder, name, squared), record(decoder, name) as recorded:
        result, after = decoder(x, state, kv, attention_mask)
    assert shapes == {T}  # edits see whole sequences only
    for step in range(T):
        with edit(decoder, name, torch.square), record(decoder, name) as one:
            outputs, state = decoder(x[:, step : step + 1], state, kv, attention_mask)
        assert_close(outputs[:, 0], result[:, step])
        assert_close(one[name][..., 0, :], recorded[name][..., step, :])
    assert_close(after, state)
    assert (result - plain).abs().amax((0, 2)).min() > 1e-6


def test_input_feeding_fires_each_tap_once_without_edits() -> None:
    decoder, x, recorded = input_feeding_decoder(LSTM), random_tensor(B, T, H), []
    plain = decoder(x, *whole_text(decoder))[0]
    with ExitStack() as hooks:
        for name in TAP_NAMES:
            hooks.enter_context(edit(decoder, name, lambda activation, name=name: recorded.append(name) or activation))
        assert_close(decoder(x, *whole_text(decoder))[0], plain)
    assert recorded == TAP_NAMES
    assert not any(tap.active for tap in taps(decoder).values())


def test_input_feeding_layer_output_can_be_replaced() -> None:
    decoder, x = input_feeding_decoder(GRU), random_tensor(B, T, H)
    with record(decoder, "0.out") as recorded:
        plain = decoder(x, *whole_text(decoder))[0]
    other = recorded["0.out"].clone()
    other[:, 2] += 1
    with edit(decoder, "0.out", lambda _: recorded["0.out"]):
        assert_close(decoder(x, *whole_text(decoder))[0], plain)
    with edit(decoder, "0.out", lambda _: other):
        changed = (decoder(x, *whole_text(decoder))[0] - plain).abs().amax((0, 2))
    assert_close(changed[:2], torch.zeros(2, dtype=torch.float64))
    assert changed[2:].min() > 1e-6
