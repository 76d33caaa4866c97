"""Recurrence: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014), one layer from the left.

It runs fused, by torch's own modules. While somebody listens to the tap ``drive``, it goes step by step as written,
which can be differentiated in every way; both give the same numbers. nn/rnn_layers.py makes layers of it that read and
write whole texts.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.tap import Tap

RNNState = tuple[Float[Tensor, "_ _"], ...]
"""What a recurrence remembers of each row, each part (rows, width); the first is what it gave out last."""


class RNNBase(nn.Module):
    """One layer in one direction, from the left."""

    n_states: ClassVar[int]
    Cell: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(self, d_in: int, d_state: int) -> None:
        super().__init__()
        self.cell = self.Cell(d_in, d_state, batch_first=True)
        self.drive = Tap()

    def forward(
        self, x: Float[Tensor, "B T D"], state: RNNState | None = None
    ) -> tuple[Float[Tensor, "B T Ds"], tuple[Tensor, ...]]:
        """What it gives out at each token, and what it remembers after the last; it begins with zeros."""
        if state is None:
            nothing = x.new_zeros(len(x), self.cell.hidden_size)
            state = (nothing,) * self.n_states
        if x.is_meta:
            return self._forward_meta(x, state)
        if self.drive.active:
            return self._explicit(x, state)
        with _ignore_contiguity_warning() if x.is_cuda else nullcontext():
            return self._fused(x, state)

    @abstractmethod
    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]: ...

    @abstractmethod
    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        """One token; `drive` is what it does to the gates by itself."""

    def _explicit(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        read, (of_input, _, bias, _) = [], self._weights
        for drive in self.drive(F.linear(x, of_input, bias)).unbind(1):
            state = self._step(drive, state)
            read.append(state[0])
        return torch.stack(read, 1) if read else x.new_zeros(*x.shape[:2], self.cell.hidden_size), state

    def _forward_meta(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        """What has the shapes and the cost of all steps, in one: for planning, where there are no numbers."""
        of_input, _, bias, _ = self._weights
        tokens = x.flatten(0, 1)
        before = x.new_empty(len(tokens), self.cell.hidden_size, requires_grad=x.requires_grad)
        read = self._step(F.linear(tokens, of_input, bias), (before,) * self.n_states)[0]
        return read.view(*x.shape[:2], -1), state

    @property
    def _weights(self) -> list[nn.Parameter]:
        """Matrices for the input and for what was given out before, then the biases of both."""
        return self.cell.all_weights[0]

    def _recurrent_gates(self, h: Float[Tensor, "*B D"]) -> Float[Tensor, "*B gates"]:
        """What it gave out before does to the gates."""
        _, of_state, _, bias = self._weights
        return F.linear(h, of_state, bias)


class LSTM(RNNBase):
    """``c = f c + i g``, ``h = o tanh(c)``; gates i, f, o are sigmoids and g is a tanh of ``W [x ; h] + b``."""

    n_states, Cell = 2, nn.LSTM

    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        read, (h, c) = self.cell(x, (state[0][None].contiguous(), state[1][None].contiguous()))
        return read, (h[0], c[0])

    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        h, c = state
        i, f, g, o = (input_gates + self._recurrent_gates(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRU(RNNBase):
    """``h = (1 - z) n + z h`` with sigmoid gates r, z and ``n = tanh(W x + b + r (U h + b'))``."""

    n_states, Cell = 1, nn.GRU

    def _fused(self, x: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
        read, h = self.cell(x, state[0][None].contiguous())
        return read, (h[0],)

    def _step(self, input_gates: Tensor, state: RNNState) -> RNNState:
        (h,) = state
        own = self._recurrent_gates(h).chunk(3, -1)
        r, z, n = input_gates.chunk(3, -1)
        r, z = (r + own[0]).sigmoid(), (z + own[1]).sigmoid()
        return ((1 - z) * (n + r * own[2]).tanh() + z * h,)


@contextmanager
def _ignore_contiguity_warning() -> Iterator[None]:
    """In half precision a model runs on a copy of its weights, made for each step: cuDNN gathers them, and warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")
        yield


@contextmanager
def force_unfused_rnn(model: nn.Module) -> Iterator[None]:
    """Every recurrence of a model goes as written, which has derivatives of all kinds; others are as they are."""
    with ExitStack() as listening:
        for module in model.modules():
            if isinstance(module, RNNBase):
                listening.enter_context(module.drive.register_forward_hook(noop_hook))
        yield


def noop_hook(_tap: nn.Module, _inputs: object, _output: Tensor) -> None:
    """A tap that calls this is heard, and nothing more."""
