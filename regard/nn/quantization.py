"""Models with int8 weights: `quantize` replaces the linear layers of a trained model, in place, for inference on a CPU.

    linear layers       int8 weights with a scale per output, inputs quantised by row (kernels/int8_weight.py),
                        large columns of inputs made smaller where they are known
    output embedding    int8 too; an input embedding that it was tied to stays float32, for lookups
    everything else     float32: input embeddings, norms, attention itself, recurrent cells, heads

The float32 copy of a replaced matrix is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.kernels.dispatch import int8_linear
from regard.nn.kernels.int8_packing import pack_int8_weight
from regard.nn.kernels.int8_weight import Int8Weight, quantize_weight
from regard.nn.layers import DecoderLayer
from regard.nn.linear_layers import Linear
from regard.nn.loss import Loss, cross_entropy
from regard.nn.output_embedding import OutputEmbedding, OutputProjection, RowProjector

ROWS_PER_LOSS = 64
"""Rows whose logits are computed at once for a loss."""


class QuantizedLinear(nn.Module):
    """``x W^T + b`` with an int8 W, in blocks of outputs that can be computed by themselves."""

    def __init__(
        self,
        weight: Float[Tensor, "out D"],
        bias: Float[Tensor, " out"] | None,
        widths: Sequence[int] = (),
        input_maximum: Float[Tensor, " D"] | None = None,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        ends = torch.tensor([0, *(widths or [len(weight)])]).cumsum(0).tolist()
        self._bounds = list(pairwise(ends))
        self._weights = [
            pack_int8_weight(quantize_weight(weight[start:end], input_maximum)) for start, end in self._bounds
        ]

    @property
    def n_weights(self) -> int:
        """The number of weights of the matrix."""
        return self.out_features * self.in_features

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B out"]:
        outputs = [self._multiply(x, block) for block in range(len(self._bounds))]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)

    def forward_outputs(self, x: Float[Tensor, "*B D"], start: int, end: int) -> Float[Tensor, "*B some"]:
        """Return the outputs from `start` up to `end`, which are a block."""
        return self._multiply(x, self._bounds.index((start, end)))

    def block(self, number: int) -> tuple[Int8Weight, Float[Tensor, " some"] | None]:
        """Return the weight and the bias of a block."""
        start, end = self._bounds[number]
        return self._weights[number], None if self.bias is None else self.bias[start:end]

    def _multiply(self, x: Tensor, number: int) -> Tensor:
        return int8_linear(x, *self.block(number))


class QuantizedOutputEmbedding(nn.Module):
    """`OutputEmbedding` with an int8 matrix."""

    def __init__(self, embedding: OutputEmbedding, *, tied: bool) -> None:
        super().__init__()
        self._weight, self.tied = pack_int8_weight(quantize_weight(embedding.weight)), tied

    @property
    def n_weights(self) -> int:
        """The number of weights that no other module has."""
        return 0 if self.tied else self._weight.shape[0] * self._weight.shape[1]

    def projection(self, bias: Float[Tensor, " V"] | None = None) -> OutputProjection:
        return lambda x: int8_linear(x, self._weight, bias)

    def make_row_projector(self, bias: Float[Tensor, " V"] | None = None) -> RowProjector:
        values = self._weight.unpacked_values()

        def project(rows: Int[Tensor, " U"]) -> OutputProjection:
            weight = pack_int8_weight(self._weight.select(rows, values), self._weight.shape)
            chosen = None if bias is None else bias[rows]
            return lambda x: int8_linear(x, weight, chosen)

        return project

    def logits(self, hidden: Float[Tensor, "*B D"], bias: Float[Tensor, " V"] | None = None) -> Float[Tensor, "*B V"]:
        return int8_linear(hidden, self._weight, bias)

    def cross_entropy(
        self, hidden: Float[Tensor, "*B D"], target: Int[Tensor, "*B"], bias: Float[Tensor, " V"] | None = None
    ) -> Loss:
        chunks = zip(hidden.flatten(0, -2).split(ROWS_PER_LOSS), target.flatten().split(ROWS_PER_LOSS), strict=True)
        losses = [cross_entropy(self.logits(rows, bias), labels) for rows, labels in chunks]
        return Loss(*(torch.stack(parts).sum() for parts in zip(*losses, strict=True)))


@torch.no_grad()
def quantize(
    model: nn.Module,
    keep: Collection[nn.Module] = (),
    input_maxima: Mapping[nn.Module, Float[Tensor, " D"]] = MappingProxyType({}),
) -> int:
    """Replace the linear layers and the output embedding of a model, in place; return how many.

    Modules inside those of `keep` stay as they are. `input_maxima` are those of `watch_inputs`.
    """
    kept = {module for each in keep for module in each.modules()}
    widths = _find_blocks(model)
    n_replaced = 0
    for parent in [module for module in model.modules() if module not in kept]:
        for name, module in parent.named_children():
            if module not in kept and (quantized := _quantize_module(module, widths, input_maxima, model)):
                setattr(parent, name, quantized)
                n_replaced += 1
    return n_replaced


@contextmanager
def watch_inputs(model: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """Collect the largest magnitude of each column of the inputs of linear layers that run meanwhile."""
    maxima: dict[nn.Module, Tensor] = {}

    def update(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        largest = inputs[0].flatten(0, -2).abs().amax(0)
        maxima[module] = torch.maximum(maxima.get(module, largest), largest)

    linears = (module for module in model.modules() if isinstance(module, Linear))
    hooks = [module.register_forward_pre_hook(update) for module in linears]
    try:
        yield maxima
    finally:
        for hook in hooks:
            hook.remove()


def _quantize_module(
    module: nn.Module,
    widths: Mapping[nn.Module, Sequence[int]],
    input_maxima: Mapping[nn.Module, Tensor],
    model: nn.Module,
) -> nn.Module | None:
    """Return the int8 counterpart of a module, if there is one."""
    if isinstance(module, Linear):
        return QuantizedLinear(module.weight, module.bias, widths.get(module, ()), input_maxima.get(module))
    if isinstance(module, OutputEmbedding):
        others = (each for each in model.modules() if isinstance(each, nn.Embedding) and each is not module)
        return QuantizedOutputEmbedding(module, tied=any(each.weight is module.weight for each in others))
    return None


def _find_blocks(model: nn.Module) -> dict[nn.Module, Sequence[int]]:
    """Return the widths of the blocks of each projection that has some: cross-attention projects queries alone."""
    attentions = [module.cross_attention for module in model.modules() if isinstance(module, DecoderLayer)]
    return {each.projection: (each.qkv_widths[0], sum(each.qkv_widths[1:])) for each in attentions}


def is_quantized(model: nn.Module) -> bool:
    """Return True if a part of the model has int8 weights."""
    return any(isinstance(module, QuantizedLinear | QuantizedOutputEmbedding) for module in model.modules())


def count_weights(model: nn.Module) -> int:
    """Return the number of trained weights of a model, those of int8 included."""
    quantized = (each for each in model.modules() if isinstance(each, QuantizedLinear | QuantizedOutputEmbedding))
    return sum(module.n_weights for module in quantized) + sum(weight.numel() for weight in model.parameters())
