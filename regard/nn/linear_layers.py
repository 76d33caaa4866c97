"""Linear layers by way of kernels/dispatch.py: fast also where few rows meet a large matrix, as in decoding."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.kernels.dispatch import linear, prepacked_linear
from regard.nn.kernels.workspace import PackedWeight


class Linear(nn.Linear):
    """`torch.nn.Linear` by way of the kernels."""

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B out"]:
        return linear(x, self.weight, self.bias)


class PrepackedLinear:
    """``x @ weight.T + bias`` again and again with a vocabulary that stays as it is meanwhile.

    A kernel may keep a copy of it in a layout of its own.
    """

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None = None) -> None:
        self.weight, self.bias = weight, bias
        self._packed = PackedWeight()

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        return prepacked_linear(x, self.weight, self.bias, self._packed)
