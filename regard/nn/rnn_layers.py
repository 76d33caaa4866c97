"""Recurrent layers that read whole texts, from the left, from the right, or both, and layers that write them.

Every row holds one text, from the left, empty positions behind it; nothing here waits for the device to say how long
texts are:

    ahead    a  b  c  .  .        what stands behind a text cannot change it
    back     c  b  a  .  .        read reversed within its own length, and what was read put back

models/recurrent/ makes models of them; nn/rnn.py is the recurrence itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import RecurrentCrossAttention
from regard.nn.dropout import Dropout
from regard.nn.kv_cache import KeyValue
from regard.nn.linear_layers import Linear
from regard.nn.mask import AttentionMask
from regard.nn.rnn import RNNBase, RNNState, noop_hook
from regard.nn.tap import Tap


def reverse_sequences(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
    """Every text reversed where it stands, what is behind it left alone; twice is as it was."""
    place = torch.arange(x.shape[1], device=x.device)
    turned = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return x.gather(1, turned[..., None].expand_as(x).long())


class RecurrentEncoderLayer(nn.Module):
    """One layer that reads texts from the left, from the right, or both, side by side in what it gives out."""

    def __init__(self, ahead: RNNBase | None, back: RNNBase | None, dropout: float) -> None:
        super().__init__()
        assert ahead is not None or back is not None, "no direction to read in"
        self.ahead, self.back = ahead, back
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T Ds"]:
        x = self.dropout(x)
        read = [] if self.ahead is None else [self.ahead(x)[0]]
        if self.back is not None:
            read.append(reverse_sequences(self.back(reverse_sequences(x, lengths))[0], lengths))
        result: Tensor = self.out(torch.cat(read, -1))
        return result

    def final_outputs(self, outputs: Float[Tensor, "B T Ds"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B Ds"]:
        """What each direction gave out when it had read a whole text: at its last token, and at its first."""
        ahead = 0 if self.ahead is None else self.ahead.cell.hidden_size
        end = (lengths - 1).clamp(min=0).long()[:, None, None].expand(-1, 1, ahead)
        return torch.cat((outputs[..., :ahead].gather(1, end)[:, 0], outputs[:, 0, ahead:]), -1)


class RecurrentEncoderStack(nn.ModuleList):
    """A stack of layers that read whole texts."""

    def __init__(self, layers: Iterable[RecurrentEncoderLayer]) -> None:
        super().__init__(layers)

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T Ds"]:
        """What leaves the last layer at each token."""
        for layer in self:
            x = layer(x, lengths)
        return x


class RecurrentDecoderLayer(nn.Module):
    """One layer that writes: a recurrence from the left that goes on from a state."""

    def __init__(self, recurrence: RNNBase, dropout: float) -> None:
        super().__init__()
        self.recurrence = recurrence
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        state: RNNState,
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Float[Tensor, "N T Ds"], tuple[Tensor, ...]]:
        made, state = self.compute_output(x, state, cross_kv, cross_attention_mask)
        return self.out(made), state

    def compute_output(
        self,
        x: Float[Tensor, "N T D"],
        state: RNNState,
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Float[Tensor, "N T Ds"], tuple[Tensor, ...]]:
        """What the layer makes of tokens, before its tap, and what it remembers after the last."""
        read, state = self.recurrence(self.dropout(x), state)
        return self.apply_attention(read, cross_kv, cross_attention_mask), state

    def apply_attention(
        self, outputs: Float[Tensor, "N T D"], cross_kv: KeyValue | None, cross_attention_mask: AttentionMask | None
    ) -> Float[Tensor, "N T Ds"]:
        """What becomes of what its recurrence gave out."""
        return outputs


class AttentionalDecoderLayer(RecurrentDecoderLayer):
    """The last layer of a decoder that looks back: ``tanh(W [context ; state])`` (Luong et al. 2015, eq. 5).

    W is two matrices, the one for what is seen being the output of the attention.
    """

    def __init__(self, recurrence: RNNBase, cross_attention: RecurrentCrossAttention, dropout: float) -> None:
        super().__init__(recurrence, dropout)
        self.cross_attention = cross_attention
        self.own = Linear(recurrence.cell.hidden_size, cross_attention.output.out_features)

    def apply_attention(
        self, outputs: Float[Tensor, "N T D"], cross_kv: KeyValue | None, cross_attention_mask: AttentionMask | None
    ) -> Float[Tensor, "N T Ds"]:
        assert cross_kv is not None
        assert cross_attention_mask is not None
        combined: Tensor = self.cross_attention.cross_attend(outputs, cross_kv, cross_attention_mask) + self.own(
            outputs
        )
        return combined.tanh()


class RecurrentDecoderStack(nn.ModuleList):
    """A stack of layers that write; all tokens of a text go through a layer at once."""

    def __init__(self, layers: Iterable[RecurrentDecoderLayer]) -> None:
        super().__init__(layers)

    def init_states(self, states: Sequence[RNNState]) -> list[RNNState]:
        """All that is remembered before the first token, given the state of each layer."""
        return list(states)

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        states: Sequence[RNNState],
        cross_kv: KeyValue | None = None,
        cross_attention_mask: AttentionMask | None = None,
    ) -> tuple[Float[Tensor, "N T Ds"], list[tuple[Tensor, ...]]]:
        """What leaves the last layer at each token, and all that is remembered after the last one."""
        after = []
        for layer, state in zip(self, states, strict=True):
            x, state = layer(x, state, cross_kv, cross_attention_mask)
            after.append(state)
        return x, after


class InputFeedingDecoderStack(RecurrentDecoderStack):
    """A stack whose last output enters the first layer beside the next token (input feeding, Luong et al. 2015, 3.3).

    So tokens go through all layers one by one, unheard. For those who listen, all of them then go together, each beside
    what was fed back to it. Where a tap changes what flows, that changes too, and they go again: every time one token
    more has been fed what it should. What leaves the last layer is fed back as it comes to the tap ``out``, so that
    nothing of the stack lies behind that tap.
    """

    def init_states(self, states: Sequence[RNNState]) -> list[RNNState]:
        return [*states, (torch.zeros_like(states[-1][0]),)]

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        states: Sequence[RNNState],
        cross_kv: KeyValue | None = None,
        cross_attention_mask: AttentionMask | None = None,
    ) -> tuple[Float[Tensor, "N T Ds"], list[tuple[Tensor, ...]]]:
        heard = [tap for tap in self.modules() if isinstance(tap, Tap) and tap.active]
        if not heard:
            written, after = self._decode_stepwise(x, states, cross_kv, cross_attention_mask)
            return torch.cat(written, 1), after
        with _mute_taps(heard):
            written, _ = self._decode_stepwise(x[:, :-1], states, cross_kv, cross_attention_mask)
        (*own, (first,)), (*_, top) = states, self._layers()
        fed = torch.cat((first[:, None], *written), 1)
        with _watch_edits([tap for tap in heard if tap is not top.out]) as changed:
            for _ in range(x.shape[1]):
                changed.clear()
                made, out, after = self._forward_layers(torch.cat((x, fed), -1), own, cross_kv, cross_attention_mask)
                if not changed:
                    break
                fed = torch.cat((first[:, None], made[:, :-1]), 1)
        return out, after

    def _decode_stepwise(
        self,
        x: Tensor,
        states: Sequence[RNNState],
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[list[Tensor], list[RNNState]]:
        written = []
        for token in x.unbind(1):
            *own, (fed,) = states
            made, _, states = self._forward_layers(
                torch.cat((token, fed), -1)[:, None], own, cross_kv, cross_attention_mask
            )
            written.append(made)
        return written, list(states)

    def _forward_layers(
        self,
        x: Tensor,
        states: Sequence[RNNState],
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Tensor, Tensor, list[RNNState]]:
        """Tokens through all layers: what the last makes of them, what leaves its tap, and all that is remembered."""
        after: list[RNNState] = []
        for layer, state in zip(self._layers(), states, strict=True):
            made, remembered = layer.compute_output(x, state, cross_kv, cross_attention_mask)
            x = layer.out(made)
            after.append(remembered)
        return made, x, [*after, (made[:, -1],)]

    def _layers(self) -> Iterator[RecurrentDecoderLayer]:
        for layer in self:
            assert isinstance(layer, RecurrentDecoderLayer)
            yield layer


@contextmanager
def _mute_taps(taps: Sequence[Tap]) -> Iterator[None]:
    """Nobody hears what flows through these taps, which count as heard nevertheless: nothing is computed otherwise."""
    hooks = [tap._forward_hooks for tap in taps]
    for tap in taps:
        tap._forward_hooks = OrderedDict({0: noop_hook})
    try:
        yield
    finally:
        for tap, own in zip(taps, hooks, strict=True):
            tap._forward_hooks = own


@contextmanager
def _watch_edits(taps: Sequence[Tap]) -> Iterator[set[nn.Module]]:
    """The taps through which something else came out than went in."""
    changed: set[nn.Module] = set()

    def compare(tap: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if output is not inputs[0]:
            changed.add(tap)

    with ExitStack() as watching:
        for tap in taps:
            watching.enter_context(tap.register_forward_hook(compare))
        yield changed
