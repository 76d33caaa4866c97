"""The optimiser: fused AdamW with layer-wise learning-rate decay, or row-wise Adagrad for sparse gradients.

The learning rate of a step is schedule.py's.
"""

from __future__ import annotations

from itertools import groupby

import torch
from torch import nn

from regard.models.freezing import count_layers_above, count_layers_of
from regard.training.rowwise_adagrad import RowwiseAdagrad


def build_optimiser(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> torch.optim.Optimizer:
    """Return row-wise Adagrad for a model of word vectors, whose gradients are sparse; AdamW for all others."""
    if any(isinstance(module, nn.Embedding) and module.sparse for module in model.modules()):
        return RowwiseAdagrad(model.parameters())
    return build_adamw(model, weight_decay, layer_decay)


def build_adamw(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> torch.optim.AdamW:
    """Return fused AdamW with the betas of Vaswani et al. 2017; vectors (biases, norms) have no weight decay.

    Frozen weights are left out.
    With `layer_decay` the learning rate of each layer is that of the layer above times `layer_decay`; the embeddings
    have the lowest.
    """
    n_layers = count_layers_of(model)
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]

    def group_key(named: tuple[str, nn.Parameter]) -> tuple[int, bool]:
        name, weight = named
        return count_layers_above(name, n_layers) if layer_decay < 1 else 0, weight.ndim < 2

    groups = [
        {
            "params": [weight for _, weight in members],
            "weight_decay": 0.0 if is_vector else weight_decay,
            "lr_scale": layer_decay**n_above,
        }
        for (n_above, is_vector), members in groupby(sorted(trained, key=group_key), key=group_key)
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of the next step, scaled for each parameter group."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
