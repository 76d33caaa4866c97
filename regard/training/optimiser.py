"""The optimiser: fused AdamW with layer-wise learning-rate decay. The learning rate of a step is schedule.py's."""

from __future__ import annotations

import re
from itertools import groupby

import torch
from torch import nn


def build_adamw(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> torch.optim.AdamW:
    """Return fused AdamW with the betas of Vaswani et al. 2017; vectors (biases, norms) have no weight decay.

    Frozen weights are left out.
    With `layer_decay` the learning rate of each layer is that of the layer above times `layer_decay`; the embeddings
    have the lowest.
    """
    n_layers = 1 + max((_layer_index(name) or 0 for name, _ in model.named_parameters()), default=0)
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]

    def group_key(named: tuple[str, nn.Parameter]) -> tuple[int, bool]:
        name, weight = named
        return _n_layers_above(name, n_layers) if layer_decay < 1 else 0, weight.ndim < 2

    groups = [
        {
            "params": [weight for _, weight in members],
            "weight_decay": 0.0 if is_vector else weight_decay,
            "lr_scale": layer_decay**n_above,
        }
        for (n_above, is_vector), members in groupby(sorted(trained, key=group_key), key=group_key)
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def _layer_index(name: str) -> int | None:
    """Return the index of the layer that a weight belongs to; None outside the layers."""
    match = re.match(r"(?:encoder|decoder)\.(\d+)\.", name)
    return int(match[1]) if match else None


def _n_layers_above(name: str, n_layers: int) -> int:
    """Return the number of layers above a weight: 0 for the heads, all of them and one more for the embeddings."""
    layer = _layer_index(name)
    if layer is None:
        return n_layers + 1 if "embedding" in name.split(".")[0] else 0
    return n_layers - layer


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of the next step, scaled for each parameter group."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
