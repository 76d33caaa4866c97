"""Linear layers through kernels/dispatch.py, which has kernels for small batches, as in decoding."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.dispatch import linear, prepacked_linear
from regard.nn.kernels.workspace import PackedWeight


class Linear(nn.Linear):
    """`torch.nn.Linear` through the kernels."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B out"]:
        return linear(x, self.weight, self.bias)

    def forward_outputs(self, x: Float[Tensor, "*B D"], start: int, end: int) -> Float[Tensor, "*B some"]:
        """Return the outputs from `start` up to `end`, without computing the others."""
        return linear(x, self.weight[start:end], None if self.bias is None else self.bias[start:end])


class PrepackedLinear:
    """``x @ weight.T + bias`` for many calls with a constant weight: the output projection of decoding.

    A kernel may keep a copy of the weight in a layout of its own.
    """

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._packed = PackedWeight()

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        return prepacked_linear(x, self.weight, self.bias, self._packed)
