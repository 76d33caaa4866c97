"""LSTM and GRU: fused against stepwise, derivatives, FLOPs, copies of weights, warnings."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from drawing import CELLS, B, D, H, T, random_tensor, randomise_weights
from torch.func import functional_call, jvp, vmap
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from regard.nn import LSTM, RecurrentEncoderLayer, RNNBase, force_unfused


@pytest.mark.parametrize("cell", CELLS)
def test_fused_equals_stepwise_with_gradients(cell: type[RNNBase]) -> None:
    rnn = randomise_weights(cell(D, H))
    x = random_tensor(B, T, D).requires_grad_()
    initial = tuple(random_tensor(B, H, seed=part) for part in range(cell.n_states))
    results = []
    for unfused in (False, True):
        if unfused:
            with force_unfused(rnn):
                outputs, state = rnn(x, initial)
        else:
            outputs, state = rnn(x, initial)
        weights = [x, *rnn.parameters()]
        results.append([outputs, *state, *torch.autograd.grad(outputs.sin().sum() + state[-1].sum(), weights)])
    assert_close(*results)
    assert not rnn.drive.active


@pytest.mark.parametrize("cell", CELLS)
def test_continuing_from_a_state_equals_one_pass(cell: type[RNNBase]) -> None:
    rnn, x = randomise_weights(cell(D, H)), random_tensor(B, T, D)
    whole, after = rnn(x)
    first, state = rnn(x[:, :2])
    second, state = rnn(x[:, 2:], state)
    assert_close(torch.cat((first, second), 1), whole)
    assert_close(state, after)


@pytest.mark.parametrize("cell", CELLS)
def test_stepwise_supports_batched_forward_mode_derivatives(cell: type[RNNBase]) -> None:
    layer, x = randomise_weights(RecurrentEncoderLayer(cell(D, H), cell(D, H), 0.0)), random_tensor(1, T, D)
    directions, length = random_tensor(7, 1, T, D, seed=3), torch.tensor([4])
    with force_unfused(layer), torch.enable_grad():
        results = vmap(lambda d: jvp(lambda x: layer(x, length), (x,), (d,))[1])(directions)
    near = [(layer(x + 1e-6 * d, length) - layer(x - 1e-6 * d, length)) / 2e-6 for d in directions]
    assert_close(results, torch.stack(near), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cell", CELLS)
def test_meta_device_gives_shapes_and_flops(cell: type[RNNBase]) -> None:
    """The training plan must not run every step."""
    with torch.device("meta"):
        rnn, x = cell(D, H), torch.empty(B, T, D, requires_grad=True)
    gates = 4 if cell is LSTM else 3
    with FlopCounterMode(display=False) as counter:
        outputs, state = rnn(x)
        outputs.sum().backward()
    assert (outputs.shape, [part.shape for part in state]) == ((B, T, H), [(B, H)] * cell.n_states)
    assert counter.get_total_flops() == 3 * 2 * B * T * gates * H * (D + H)


@pytest.mark.parametrize("cell", CELLS)
def test_runs_on_a_half_precision_copy_of_its_weights(cell: type[RNNBase]) -> None:
    rnn = cell(D, H)
    narrow = {name: weight.bfloat16() for name, weight in rnn.named_parameters()}
    outputs, _ = functional_call(rnn, narrow, (torch.randn(B, T, D).bfloat16(),))
    assert outputs.dtype == torch.bfloat16
    zero = {name: 0 * weight for name, weight in rnn.named_parameters()}
    assert not functional_call(rnn, zero, (torch.randn(B, T, D),))[0].any()


def test_import_adds_no_warning_filters() -> None:
    script = (
        "import warnings, torch; import regard.nn; print([f for f in warnings.filters if f[1] and 'RNN' in str(f[1])])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.gpu
@pytest.mark.parametrize("cell", CELLS)
def test_copied_weights_give_no_cudnn_warning(cell: type[RNNBase]) -> None:
    """Warnings are errors in tests; cuDNN's warning about non-contiguous weights must be suppressed."""
    rnn = cell(D, H).cuda()
    narrow = {name: weight.bfloat16() for name, weight in rnn.named_parameters()}
    outputs, _ = functional_call(rnn, narrow, (torch.randn(B, T, D, device="cuda").bfloat16(),))
    assert outputs.isfinite().all()
