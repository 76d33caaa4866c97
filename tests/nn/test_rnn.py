"""Recurrence fused and step by step, its derivatives, its cost, and copies of its weights; and no filters of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from drawing import CELLS, B, D, H, T, drawn, stirred
from torch.func import functional_call, jvp, vmap
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from regard.nn import LSTM, RecurrentEncoderLayer, RNNBase, force_unfused_rnn


@pytest.mark.parametrize("cell", CELLS)
def test_fused_is_step_by_step_in_numbers_and_gradients(cell: type[RNNBase]) -> None:
    recurrence = stirred(cell(D, H))
    x = drawn(B, T, D).requires_grad_()
    begin = tuple(drawn(B, H, seed=part) for part in range(cell.n_states))
    found = []
    for listening in (False, True):
        if listening:
            with force_unfused_rnn(recurrence):
                read, state = recurrence(x, begin)
        else:
            read, state = recurrence(x, begin)
        weights = [x, *recurrence.parameters()]
        found.append([read, *state, *torch.autograd.grad(read.sin().sum() + state[-1].sum(), weights)])
    assert_close(*found)
    assert not recurrence.drive.active


@pytest.mark.parametrize("cell", CELLS)
def test_going_on_from_a_state_is_going_on(cell: type[RNNBase]) -> None:
    recurrence, x = stirred(cell(D, H)), drawn(B, T, D)
    whole, after = recurrence(x)
    first, state = recurrence(x[:, :2])
    second, state = recurrence(x[:, 2:], state)
    assert_close(torch.cat((first, second), 1), whole)
    assert_close(state, after)


@pytest.mark.parametrize("cell", CELLS)
def test_step_by_step_it_has_forward_derivatives_of_many_directions(cell: type[RNNBase]) -> None:
    layer, x = stirred(RecurrentEncoderLayer(cell(D, H), cell(D, H), 0.0)), drawn(1, T, D)
    directions, length = drawn(7, 1, T, D, seed=3), torch.tensor([4])
    with force_unfused_rnn(layer), torch.enable_grad():
        found = vmap(lambda d: jvp(lambda x: layer(x, length), (x,), (d,))[1])(directions)
    near = [(layer(x + 1e-6 * d, length) - layer(x - 1e-6 * d, length)) / 2e-6 for d in directions]
    assert_close(found, torch.stack(near), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cell", CELLS)
def test_on_no_device_it_has_the_shapes_and_the_work(cell: type[RNNBase]) -> None:
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
def test_it_runs_on_a_narrower_copy_of_its_weights(cell: type[RNNBase]) -> None:
    recurrence = cell(D, H)
    narrow = {name: weight.bfloat16() for name, weight in recurrence.named_parameters()}
    read, _ = functional_call(recurrence, narrow, (torch.randn(B, T, D).bfloat16(),))
    assert read.dtype == torch.bfloat16
    zero = {name: 0 * weight for name, weight in recurrence.named_parameters()}
    assert not functional_call(recurrence, zero, (torch.randn(B, T, D),))[0].any()


def test_importing_it_leaves_the_warnings_of_the_process_alone() -> None:
    script = (
        "import warnings, torch; import regard.nn; print([f for f in warnings.filters if f[1] and 'RNN' in str(f[1])])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.gpu
@pytest.mark.parametrize("cell", CELLS)
def test_a_copy_of_its_weights_gives_no_warning(cell: type[RNNBase]) -> None:
    """Warnings are errors here; what cuDNN says of weights that lie apart is no matter of the user's."""
    recurrence = cell(D, H).cuda()
    narrow = {name: weight.bfloat16() for name, weight in recurrence.named_parameters()}
    read, _ = functional_call(recurrence, narrow, (torch.randn(B, T, D, device="cuda").bfloat16(),))
    assert read.isfinite().all()
