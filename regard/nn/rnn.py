"""LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014): one forward layer each.

They run fused, by torch's own modules. While the tap ``drive`` (the input's contribution to the gates) is active, they
run step by step from the defining equations, which supports forward-mode and second derivatives; both paths give the
same numbers. nn/rnn_layers.py builds encoder and decoder layers from them.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.tap import Tap

RNNState = tuple[Float[Tensor, "_ _"], ...]
"""The state tensors of an RNN, each (rows, width): h, and for an LSTM c."""


class RNNBase(nn.Module):
    """One forward RNN layer."""

    n_states: ClassVar[int]
    Cell: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(self, d_in: int, d_state: int) -> None:
        super().__init__()
        self.cell = self.Cell(d_in, d_state, batch_first=True)
        self.drive = Tap()

    def forward(
        self, x: Float[Tensor, "B T D"], state: RNNState | None = None
    ) -> tuple[Float[Tensor, "B T Ds"], tuple[Tensor, ...]]:
        """Return the output at each token and the final state; the initial state is zeros by default."""
        if state is None:
            state = (x.new_zeros(len(x), self.cell.hidden_size),) * self.n_states
        if x.is_meta:
            return self._forward_meta(x, state)
        if self.drive.active:
            return self._explicit(x, state)
        with _ignore_contiguity_warning() if x.is_cuda and torch.is_grad_enabled() else nullcontext():
            return self._fused(x, state)

    @abstractmethod
    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]: ...

    @abstractmethod
    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        """Return the state after one more token; `input_gates` is ``W x + b`` of its input."""

    def _explicit(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        outputs, (w_ih, _, b_ih, _) = [], self._weights
        for input_gates in self.drive(F.linear(x, w_ih, b_ih)).unbind(1):
            state = self._step(input_gates, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1) if outputs else x.new_zeros(*x.shape[:2], self.cell.hidden_size), state

    def _forward_meta(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        """Run all steps as one batch of tokens: the right shapes and cost on the meta device, for the training plan."""
        w_ih, _, b_ih, _ = self._weights
        tokens = x.flatten(0, 1)
        previous = x.new_empty(len(tokens), self.cell.hidden_size, requires_grad=x.requires_grad)
        outputs = self._step(F.linear(tokens, w_ih, b_ih), (previous,) * self.n_states)[0]
        return outputs.view(*x.shape[:2], -1), state

    @property
    def _weights(self) -> list[nn.Parameter]:
        """Return ``W_ih, W_hh, b_ih, b_hh`` in PyTorch's notation."""
        return self.cell.all_weights[0]

    def _recurrent_gates(self, h: Float[Tensor, "*B D"]) -> Float[Tensor, "*B gates"]:
        """Return the contribution of the previous output to the gates."""
        _, w_hh, _, b_hh = self._weights
        return F.linear(h, w_hh, b_hh)


class LSTM(RNNBase):
    """``c = f c + i g``, ``h = o tanh(c)``; gates i, f, o are sigmoids and g is a tanh of ``W [x ; h] + b``."""

    n_states, Cell = 2, nn.LSTM

    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        outputs, (h, c) = self.cell(x, (state[0][None].contiguous(), state[1][None].contiguous()))
        return outputs, (h[0], c[0])

    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        h, c = state
        i, f, g, o = (input_gates + self._recurrent_gates(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRU(RNNBase):
    """``h = (1 - z) n + z h`` with sigmoid gates r, z and ``n = tanh(W x + b + r (U h + b'))``."""

    n_states, Cell = 1, nn.GRU

    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        outputs, h = self.cell(x, state[0][None].contiguous())
        return outputs, (h[0],)

    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        (h,) = state
        h_r, h_z, h_n = self._recurrent_gates(h).chunk(3, -1)
        r, z, n = input_gates.chunk(3, -1)
        r, z = (r + h_r).sigmoid(), (z + h_z).sigmoid()
        return ((1 - z) * (n + r * h_n).tanh() + z * h,)


@contextmanager
def _ignore_contiguity_warning() -> Iterator[None]:
    """Ignore cuDNN's warning that it gathers the weights: in half precision each step runs on a copy of them.

    Only training does, in one thread: filters of warnings belong to the process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield
