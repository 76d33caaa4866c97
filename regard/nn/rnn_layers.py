"""Recurrent encoder and decoder layers and their stacks; models/recurrent/ composes models from them.

Every row holds one left-aligned text followed by padding. Lengths stay on the device, so nothing synchronises:

    forward    a  b  c  .  .        padding follows the text and cannot change it
    backward   c  b  a  .  .        reversed within the text's length; the outputs are reversed back

nn/rnn.py holds the LSTM and GRU themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import RecurrentCrossAttention
from regard.nn.dropout import Dropout
from regard.nn.kv_cache import KeyValue
from regard.nn.linear_layers import Linear
from regard.nn.mask import AttentionMask
from regard.nn.rnn import RNNBase, RNNState
from regard.nn.tap import Tap, mute_taps, watch_edits


def reverse_sequences(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
    """Reverse every text within its length and leave the padding in place; the inverse of itself."""
    position = torch.arange(x.shape[1], device=x.device)
    reversed_position = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    return x.gather(1, reversed_position[..., None].expand_as(x).long())


class RecurrentEncoderLayer(nn.Module):
    """A forward, a backward or a bidirectional layer; the outputs of two directions are concatenated."""

    def __init__(self, forward_rnn: RNNBase | None, backward_rnn: RNNBase | None, dropout: float) -> None:
        super().__init__()
        assert forward_rnn is not None or backward_rnn is not None, "a layer needs a direction"
        self.forward_rnn, self.backward_rnn = forward_rnn, backward_rnn
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T Ds"]:
        x = self.dropout(x)
        outputs = [] if self.forward_rnn is None else [self.forward_rnn(x)[0]]
        if self.backward_rnn is not None:
            outputs.append(reverse_sequences(self.backward_rnn(reverse_sequences(x, lengths))[0], lengths))
        result: Tensor = self.out(torch.cat(outputs, -1))
        return result

    def final_outputs(self, outputs: Float[Tensor, "B T Ds"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B Ds"]:
        """Return the final output of each direction: at the last token of a text, and at its first."""
        width = 0 if self.forward_rnn is None else self.forward_rnn.cell.hidden_size
        end = (lengths - 1).clamp(min=0).long()[:, None, None].expand(-1, 1, width)
        return torch.cat((outputs[..., :width].gather(1, end)[:, 0], outputs[:, 0, width:]), -1)


class SeparateDirectionsLayer(RecurrentEncoderLayer):
    """A forward and a backward layer side by side, each on its own half of the input (ELMo, Peters et al. 2018)."""

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T D"]:
        assert self.forward_rnn is not None
        assert self.backward_rnn is not None
        forward_half, backward_half = self.dropout(x).chunk(2, -1)
        backward = reverse_sequences(self.backward_rnn(reverse_sequences(backward_half, lengths))[0], lengths)
        result: Tensor = self.out(torch.cat((self.forward_rnn(forward_half)[0], backward), -1))
        return result


class RecurrentEncoderStack(nn.ModuleList):
    """A stack of recurrent encoder layers."""

    def __init__(self, layers: Iterable[RecurrentEncoderLayer]) -> None:
        super().__init__(layers)

    def forward(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T Ds"]:
        """Return the output of the last layer at each token."""
        for layer in self:
            x = layer(x, lengths)
        return x


class RecurrentDecoderLayer(nn.Module):
    """A forward layer that continues from a given state."""

    def __init__(self, rnn: RNNBase, dropout: float) -> None:
        super().__init__()
        self.rnn = rnn
        self.dropout = Dropout(dropout)
        self.out = Tap()

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        state: RNNState,
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Float[Tensor, "N T Ds"], tuple[Tensor, ...]]:
        output, state = self.compute_output(x, state, cross_kv, cross_attention_mask)
        return self.out(output), state

    def compute_output(
        self,
        x: Float[Tensor, "N T D"],
        state: RNNState,
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Float[Tensor, "N T Ds"], tuple[Tensor, ...]]:
        """Return the outputs before the tap ``out``, and the state after the last token."""
        outputs, state = self.rnn(self.dropout(x), state)
        return self.apply_attention(outputs, cross_kv, cross_attention_mask), state

    def apply_attention(
        self, outputs: Float[Tensor, "N T D"], cross_kv: KeyValue | None, cross_attention_mask: AttentionMask | None
    ) -> Float[Tensor, "N T Ds"]:
        """Combine the outputs of the RNN with attention to the source; without attention, return them unchanged."""
        return outputs


class AttentionalDecoderLayer(RecurrentDecoderLayer):
    """A decoder layer with attention: ``tanh(W [context ; state])`` (Luong et al. 2015, eq. 5).

    W is stored as two matrices: the attention's output projection for the context, `state_projection` for the state.
    """

    def __init__(self, rnn: RNNBase, cross_attention: RecurrentCrossAttention, dropout: float) -> None:
        super().__init__(rnn, dropout)
        self.cross_attention = cross_attention
        self.state_projection = Linear(rnn.cell.hidden_size, cross_attention.output.out_features)

    def apply_attention(
        self, outputs: Float[Tensor, "N T D"], cross_kv: KeyValue | None, cross_attention_mask: AttentionMask | None
    ) -> Float[Tensor, "N T Ds"]:
        assert cross_kv is not None
        assert cross_attention_mask is not None
        context = self.cross_attention.cross_attend(outputs, cross_kv, cross_attention_mask)
        combined: Tensor = context + self.state_projection(outputs)
        return combined.tanh()


class RecurrentDecoderStack(nn.ModuleList):
    """A stack of recurrent decoder layers; all tokens of a text pass through one layer before the next."""

    def __init__(self, layers: Iterable[RecurrentDecoderLayer]) -> None:
        super().__init__(layers)

    def init_states(self, states: Sequence[RNNState]) -> list[RNNState]:
        """Return the states before the first token, given the initial state of each layer."""
        return list(states)

    def forward(
        self,
        x: Float[Tensor, "N T D"],
        states: Sequence[RNNState],
        cross_kv: KeyValue | None = None,
        cross_attention_mask: AttentionMask | None = None,
    ) -> tuple[Float[Tensor, "N T Ds"], list[tuple[Tensor, ...]]]:
        """Return the output of the last layer at each token, and the states after the last token."""
        new_states = []
        for layer, state in zip(self, states, strict=True):
            x, state = layer(x, state, cross_kv, cross_attention_mask)
            new_states.append(state)
        return x, new_states


class InputFeedingDecoderStack(RecurrentDecoderStack):
    """A stack whose last output is concatenated to the next input (input feeding, Luong et al. 2015, section 3.3).

    Tokens therefore pass through all layers one by one, with muted taps. While a tap is active, all tokens then pass
    again as one sequence, each with the output fed back to it, so that taps record whole sequences. Where an edit
    changes what is fed back, the pass is repeated until nothing changes: each pass corrects at least one more token.
    The output fed back is the input of the last layer's tap ``out``, so no part of the stack depends on that tap.
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
        active = [tap for tap in self.modules() if isinstance(tap, Tap) and tap.active]
        if not active:
            outputs, new_states = self._decode_stepwise(x, states, cross_kv, cross_attention_mask)
            return torch.cat(outputs, 1), new_states
        with mute_taps(active):
            outputs, _ = self._decode_stepwise(x[:, :-1], states, cross_kv, cross_attention_mask)
        (*layer_states, (first,)), (*_, top) = states, self._layers()
        fed = torch.cat((first[:, None], *outputs), 1)
        with watch_edits([tap for tap in active if tap is not top.out]) as edited:
            for _ in range(x.shape[1]):
                edited.clear()
                output, out, new_states = self._forward_layers(
                    torch.cat((x, fed), -1), layer_states, cross_kv, cross_attention_mask
                )
                if not edited:
                    break
                fed = torch.cat((first[:, None], output[:, :-1]), 1)
        return out, new_states

    def _decode_stepwise(
        self,
        x: Tensor,
        states: Sequence[RNNState],
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[list[Tensor], list[RNNState]]:
        outputs = []
        for token in x.unbind(1):
            *layer_states, (fed,) = states
            output, _, states = self._forward_layers(
                torch.cat((token, fed), -1)[:, None], layer_states, cross_kv, cross_attention_mask
            )
            outputs.append(output)
        return outputs, list(states)

    def _forward_layers(
        self,
        x: Tensor,
        states: Sequence[RNNState],
        cross_kv: KeyValue | None,
        cross_attention_mask: AttentionMask | None,
    ) -> tuple[Tensor, Tensor, list[RNNState]]:
        """Return the last layer's output before and after its tap, and all states, the output fed back included."""
        new_states: list[RNNState] = []
        for layer, state in zip(self._layers(), states, strict=True):
            output, new_state = layer.compute_output(x, state, cross_kv, cross_attention_mask)
            x = layer.out(output)
            new_states.append(new_state)
        return output, x, [*new_states, (output[:, -1],)]

    def _layers(self) -> Iterator[RecurrentDecoderLayer]:
        for layer in self:
            assert isinstance(layer, RecurrentDecoderLayer)
            yield layer
