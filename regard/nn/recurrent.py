"""Recurrence: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014), from the left, from the right, or both.

Every row holds one text, from the left, empty positions behind it; nothing here waits for the device to say how long
texts are:

    ahead    a  b  c  .  .        what stands behind a text cannot change it
    back     c  b  a  .  .        read reversed within its own length, and what was read put back

Recurrence runs fused, by torch's own modules. While somebody listens to the tap ``drive``, it goes step by step as
written, which can be differentiated in every way; both give the same numbers.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import StateAttention
from regard.nn.cache import KeyValue
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.sight import Sight
from regard.nn.tap import Tap

# In half precision a model runs on a copy of its weights, made for each step: cuDNN has to gather them every time.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")

State = tuple[Float[Tensor, "_ _"], ...]
"""What a recurrence remembers of each row, each part (rows, width); the first is what it gave out last."""


class Recurrence(nn.Module):
    """One layer in one direction, from the left."""

    n_states: ClassVar[int]
    Cell: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(self, d_in: int, d_state: int) -> None:
        super().__init__()
        self.cell = self.Cell(d_in, d_state, batch_first=True)
        self.drive = Tap()

    def forward(
        self, x: Float[Tensor, "B T D"], state: State | None = None
    ) -> tuple[Float[Tensor, "B T Ds"], tuple[Tensor, ...]]:
        """What it gives out at each token, and what it remembers after the last; it begins with zeros."""
        if state is None:
            nothing = x.new_zeros(len(x), self.cell.hidden_size)
            state = (nothing,) * self.n_states
        if x.is_meta:
            return self._weighed(x, state)
        return self._explicit(x, state) if self.drive.heard else self._fused(x, state)

    @abstractmethod
    def _fused(self, x: Tensor, state: State) -> tuple[Tensor, State]: ...

    @abstractmethod
    def _step(self, drive: Tensor, state: State) -> State:
        """One token; `drive` is what it does to the gates by itself."""

    def _explicit(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        read, (of_input, _, bias, _) = [], self._weights
        for drive in self.drive(F.linear(x, of_input, bias)).unbind(1):
            state = self._step(drive, state)
            read.append(state[0])
        return torch.stack(read, 1) if read else x.new_zeros(*x.shape[:2], self.cell.hidden_size), state

    def _weighed(self, x: Tensor, state: State) -> tuple[Tensor, State]:
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

    def _pull(self, h: Float[Tensor, "*B D"]) -> Float[Tensor, "*B gates"]:
        """What it gave out before does to the gates."""
        _, of_state, _, bias = self._weights
        return F.linear(h, of_state, bias)


class LSTM(Recurrence):
    """``c = f c + i g``, ``h = o tanh(c)``; gates i, f, o are sigmoids and g is a tanh of ``W [x ; h] + b``."""

    n_states, Cell = 2, nn.LSTM

    def _fused(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        read, (h, c) = self.cell(x, (state[0][None].contiguous(), state[1][None].contiguous()))
        return read, (h[0], c[0])

    def _step(self, drive: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = (drive + self._pull(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRU(Recurrence):
    """``h = (1 - z) n + z h`` with sigmoid gates r, z and ``n = tanh(W x + b + r (U h + b'))``."""

    n_states, Cell = 1, nn.GRU

    def _fused(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        read, h = self.cell(x, state[0][None].contiguous())
        return read, (h[0],)

    def _step(self, drive: Tensor, state: State) -> State:
        (h,) = state
        own = self._pull(h).chunk(3, -1)
        r, z, n = drive.chunk(3, -1)
        r, z = (r + own[0]).sigmoid(), (z + own[1]).sigmoid()
        return ((1 - z) * (n + r * own[2]).tanh() + z * h,)


@contextmanager
def step_by_step(model: nn.Module) -> Iterator[None]:
    """Every recurrence of a model goes as written, which has derivatives of all kinds; others are as they are."""
    with ExitStack() as listening:
        for module in model.modules():
            if isinstance(module, Recurrence):
                listening.enter_context(module.drive.register_forward_hook(_listen))
        yield


def _listen(_tap: nn.Module, _inputs: object, _output: Tensor) -> None:
    return


def reversed_texts(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
    """Every text reversed where it stands, what is behind it left alone; twice is as it was."""
    place = torch.arange(x.shape[1], device=x.device)
    turned = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return x.gather(1, turned[..., None].expand_as(x).long())


class RecurrentLayer(nn.Module):
    """One layer that reads texts from the left, from the right, or both, side by side in what it gives out."""

    def __init__(self, ahead: Recurrence | None, back: Recurrence | None, dropout: float) -> None:
        super().__init__()
        assert ahead is not None or back is not None, "no direction to read in"
        self.ahead, self.back = ahead, back
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T Ds"]:
        x = self.dropout(x)
        read = [] if self.ahead is None else [self.ahead(x)[0]]
        if self.back is not None:
            read.append(reversed_texts(self.back(reversed_texts(x, lengths))[0], lengths))
        result: Tensor = self.out(torch.cat(read, -1))
        return result

    def last(self, read: Float[Tensor, "B T Ds"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B Ds"]:
        """What each direction gave out when it had read a whole text: at its last token, and at its first."""
        ahead = 0 if self.ahead is None else self.ahead.cell.hidden_size
        end = (lengths - 1).clamp(min=0).long()[:, None, None].expand(-1, 1, ahead)
        return torch.cat((read[..., :ahead].gather(1, end)[:, 0], read[:, 0, ahead:]), -1)


class RecurrentEncoder(nn.ModuleList):
    """A stack of layers that read whole texts."""

    def __init__(self, layers: Iterable[RecurrentLayer]) -> None:
        super().__init__(layers)

    def forward(
        self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B T Ds"], list[Tensor]]:
        """What leaves the last layer at each token, and of every layer what it gave out last (B, Ds)."""
        last = []
        for layer in self:
            x = layer(x, lengths)
            last.append(layer.last(x, lengths))  # type: ignore[operator]
        return x, last


class RecurrentDecoderLayer(nn.Module):
    """One layer that writes: a recurrence from the left that goes on from a state."""

    def __init__(self, recurrence: Recurrence, dropout: float) -> None:
        super().__init__()
        self.recurrence = recurrence
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(
        self, x: Float[Tensor, "N T D"], state: State, memory: KeyValue | None, sight: Sight | None
    ) -> tuple[Float[Tensor, "N T Ds"], tuple[Tensor, ...]]:
        read, state = self.recurrence(self.dropout(x), state)
        return self.out(self.finished(read, memory, sight)), state

    def finished(
        self, read: Float[Tensor, "N T D"], memory: KeyValue | None, sight: Sight | None
    ) -> Float[Tensor, "N T Ds"]:
        """What leaves the layer, given what its recurrence gave out."""
        return read

    @property
    def heard(self) -> bool:
        """Somebody listens to how it is finished."""
        return False


class AttentiveLayer(RecurrentDecoderLayer):
    """The last layer of a decoder that looks back: ``tanh(W [context ; state])`` (Luong et al. 2015, eq. 5).

    W is two matrices, the one for what is seen being the output of the attention.
    """

    def __init__(self, recurrence: Recurrence, cross_attention: StateAttention, dropout: float) -> None:
        super().__init__(recurrence, dropout)
        self.cross_attention = cross_attention
        self.own = Linear(recurrence.cell.hidden_size, cross_attention.output.out_features)

    def finished(
        self, read: Float[Tensor, "N T D"], memory: KeyValue | None, sight: Sight | None
    ) -> Float[Tensor, "N T Ds"]:
        assert memory is not None
        assert sight is not None
        combined: Tensor = self.cross_attention.cross(read, memory, sight) + self.own(read)
        return combined.tanh()

    @property
    def heard(self) -> bool:
        return any(tap.heard for tap in self.cross_attention.children() if isinstance(tap, Tap))


class RecurrentDecoder(nn.ModuleList):
    """A stack of layers that write; all tokens of a text go through a layer at once."""

    def __init__(self, layers: Iterable[RecurrentDecoderLayer]) -> None:
        super().__init__(layers)

    def begin(self, states: Sequence[State]) -> list[State]:
        """All that is remembered before the first token, given the state of each layer."""
        return list(states)

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        states: Sequence[State],
        memory: KeyValue | None = None,
        sight: Sight | None = None,
    ) -> tuple[Float[Tensor, "N T Ds"], list[tuple[Tensor, ...]]]:
        """What leaves the last layer at each token, and all that is remembered after the last one."""
        after = []
        for layer, state in zip(self, states, strict=True):
            x, state = layer(x, state, memory, sight)
            after.append(state)
        return x, after


class FedDecoder(RecurrentDecoder):
    """A stack whose last output enters the first layer beside the next token (input feeding, Luong et al. 2015, 3.3).

    So tokens go through all layers one by one, and all of them see the same. Where somebody listens, what was made of
    all tokens flows through the taps of the layers once more, together.
    """

    def begin(self, states: Sequence[State]) -> list[State]:
        return [*states, (torch.zeros_like(states[-1][0]),)]

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        states: Sequence[State],
        memory: KeyValue | None = None,
        sight: Sight | None = None,
    ) -> tuple[Float[Tensor, "N T Ds"], list[tuple[Tensor, ...]]]:
        *own, (fed,) = states
        read: list[list[Tensor]] = [[] for _ in self]
        written: list[list[Tensor]] = [[] for _ in self]
        for token in x.split(1, 1):
            flowing = torch.cat((token, fed[:, None]), -1)
            for number, layer in enumerate(self._layers()):
                given, own[number] = layer.recurrence(layer.dropout(flowing), own[number])
                flowing = layer.finished(given, memory, sight)
                read[number].append(given)
                written[number].append(flowing)
            fed = flowing[:, 0]
        for layer, given_all, written_all in zip(self._layers(), read, written, strict=True):
            whole = layer.finished(torch.cat(given_all, 1), memory, sight) if layer.heard else torch.cat(written_all, 1)
            out = layer.out(whole)
        return out, [*own, (fed,)]

    def _layers(self) -> Iterator[RecurrentDecoderLayer]:
        for layer in self:
            assert isinstance(layer, RecurrentDecoderLayer)
            yield layer
