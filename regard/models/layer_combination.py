"""The layers that a head reads: the last one, the last four summed or concatenated, or a learned mix of all.

A task with ``task.layers`` other than "last" puts one of these modules under the name "layers" beside its heads
(`EncoderModel.features` calls it). Devlin et al. 2019, table 7, compare them on a frozen encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.config import EncoderModelConfig

LayerChoice = Literal["last", "last4-sum", "last4-concat", "mix"]

COMBINATION_NAME = "layers"
"""The name of the module among the heads of a model."""

N_LAST_LAYERS = 4


class LastLayersSum(nn.Module):
    """The sum of the last four layers."""

    def __init__(self, d_model: int, n_layers: int) -> None:
        super().__init__()
        self.width = d_model

    def forward(self, states: Sequence[Float[Tensor, "B T D"]]) -> Float[Tensor, "B T D"]:
        return torch.stack(tuple(states[-N_LAST_LAYERS:])).sum(0)


class LastLayersConcatenation(nn.Module):
    """The last four layers side by side, the last one at the end."""

    def __init__(self, d_model: int, n_layers: int) -> None:
        super().__init__()
        self.width = N_LAST_LAYERS * d_model

    def forward(self, states: Sequence[Float[Tensor, "B T D"]]) -> Float[Tensor, "B T W"]:
        return torch.cat(tuple(states[-N_LAST_LAYERS:]), -1)


class ScalarMix(nn.Module):
    """``scale * sum_j softmax(logits)_j h_j`` over the embeddings and all layers (ELMo, Peters et al. 2018, eq. 1)."""

    def __init__(self, d_model: int, n_layers: int) -> None:
        super().__init__()
        self.width = d_model
        self.logits = nn.Parameter(torch.zeros(n_layers + 1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, states: Sequence[Float[Tensor, "B T D"]]) -> Float[Tensor, "B T D"]:
        weights = self.scale * self.logits.softmax(0)
        return torch.einsum("l,lbtd->btd", weights, torch.stack(tuple(states)))


LayerCombination = LastLayersSum | LastLayersConcatenation | ScalarMix

COMBINATIONS: dict[str, type[LayerCombination]] = {
    "last4-sum": LastLayersSum,
    "last4-concat": LastLayersConcatenation,
    "mix": ScalarMix,
}


def count_layers(config: object) -> int:
    """Return the number of layers of a model; static embeddings have none."""
    n_layers: int = getattr(config, "n_layers", 0)
    return n_layers


def check_layer_choice(choice: str, n_layers: int) -> None:
    """Refuse to combine more layers than the model has."""
    least = 1 if choice == "mix" else N_LAST_LAYERS
    if choice in COMBINATIONS and n_layers < least:
        needs = f"needs a model of at least {least} layer{'s' * (least > 1)}"
        raise ConfigError(f'task.layers = "{choice}" {needs}, this one has {n_layers}; choose "last" or another model')


def build_layer_combination(choice: str, config: EncoderModelConfig) -> LayerCombination | None:
    """Return the module that combines layers; None for the last layer alone."""
    n_layers = count_layers(config)
    check_layer_choice(choice, n_layers)
    return COMBINATIONS[choice](config.d_model, n_layers) if choice in COMBINATIONS else None
