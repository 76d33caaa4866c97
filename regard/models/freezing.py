"""Freezing: weights that training leaves as they are (``train.freeze``).

    "embeddings"    the input embeddings
    n               these and the first n layers
    "encoder"       the whole encoder with its embeddings; heads, or the decoder, are trained

A frozen module is in evaluation mode even while the rest is trained, so that its dropout is off: its outputs for a text
are always the same, and can be computed once (training/feature_cache.py).

With ``train.unfreeze`` only the heads are trained at first, and then one more layer from the top after every interval,
the embeddings last (gradual unfreezing, Howard and Ruder 2018, section 3.3). For a model of two layers:

    interval    0       1                 2                     3 and later
    trained     heads   heads, layer 1    heads, layers 1, 0    all
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from torch import nn

from regard.errors import ConfigError

Freeze = Literal["none", "embeddings", "encoder"] | int
Unfreeze = Literal["none", "epoch"] | int

INPUT_EMBEDDINGS = ("embedding", "source_embedding")
ALL_EMBEDDINGS = (*INPUT_EMBEDDINGS, "target_embedding")
ENCODER_MODULES = (*INPUT_EMBEDDINGS, "encoder", "encoder_norm")


class ParameterCounts(NamedTuple):
    """The number of parameters that are trained, and of those that are frozen."""

    trained: int
    frozen: int


def check_freeze(freeze: Freeze, n_layers: int, *, has_encoder: bool) -> None:
    """Refuse to freeze more layers than a model has, or an encoder that it has not."""
    if freeze == "encoder" and not has_encoder:
        raise ConfigError(
            'train.freeze = "encoder": this model has no encoder; accepted: embeddings, or a number of layers'
        )
    if isinstance(freeze, int) and freeze > n_layers:
        raise ConfigError(f"train.freeze = {freeze}: this model has {n_layers} layers; freeze at most that many")


def freeze_weights(model: nn.Module, freeze: Freeze) -> None:
    """Mark the weights of the frozen part, so that neither gradients nor optimiser state are kept for them."""
    frozen = find_frozen_names(model, freeze)
    for name, weight in model.named_parameters():
        if name in frozen:
            weight.requires_grad_(False)
    if frozen and not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError(f"train.freeze = {freeze!r} leaves nothing to train; freeze less")


def find_frozen_names(model: nn.Module, freeze: Freeze) -> set[str]:
    """Return the names of the weights that are frozen."""
    if freeze == "none":
        return set()
    modules = dict(model.named_children())
    stack = "encoder" if "encoder" in modules else "decoder"
    n_layers = len(list(modules[stack].children())) if stack in modules else 0
    check_freeze(freeze, n_layers, has_encoder="encoder" in modules)
    prefixes: tuple[str, ...] = ALL_EMBEDDINGS if freeze == "embeddings" else ENCODER_MODULES
    if isinstance(freeze, int):
        prefixes = (*INPUT_EMBEDDINGS, *(f"{stack}.{layer}" for layer in range(freeze)))
    return {name for name, _ in model.named_parameters() if any(name.startswith(f"{prefix}.") for prefix in prefixes)}


def count_layers_of(model: nn.Module) -> int:
    """Return the number of layers in the stack of a model, the longer one if there are two."""
    return 1 + max((layer_index(name) or 0 for name, _ in model.named_parameters()), default=0)


def layer_index(name: str) -> int | None:
    """Return the index of the layer that a weight belongs to; None outside the layers."""
    match = re.match(r"(?:encoder|decoder)\.(\d+)\.", name)
    return int(match[1]) if match else None


def count_layers_above(name: str, n_layers: int) -> int:
    """Return the number of layers above a weight: 0 for the heads, all of them and one more for the embeddings."""
    layer = layer_index(name)
    if layer is None:
        return n_layers + 1 if "embedding" in name.split(".")[0] else 0
    return n_layers - layer


def unfreeze_from_top(model: nn.Module, n_groups: int, freeze: Freeze) -> None:
    """Train the heads and the first `n_groups` groups below them, but nothing that `freeze` names."""
    frozen, n_layers = find_frozen_names(model, freeze), count_layers_of(model)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name not in frozen and count_layers_above(name, n_layers) <= n_groups)


def check_unfreeze(model: nn.Module, unfreeze: Unfreeze) -> None:
    """Refuse gradual unfreezing of a model without heads: nothing would be trained at first."""
    if unfreeze != "none" and not any(name.startswith("heads.") for name, _ in model.named_parameters()):
        raise ConfigError("train.unfreeze: this model has no head to train first; it is for classify, tag and qa")


def count_parameters(model: nn.Module, freeze: Freeze) -> ParameterCounts:
    """Return the number of trained and of frozen parameters."""
    frozen = find_frozen_names(model, freeze)
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    n_frozen = sum(size for name, size in sizes.items() if name in frozen)
    return ParameterCounts(sum(sizes.values()) - n_frozen, n_frozen)


def find_frozen_modules(model: nn.Module) -> list[nn.Module]:
    """Return the largest modules whose weights are all frozen; in training they stay in evaluation mode."""
    weights = list(model.parameters())
    if weights and not any(weight.requires_grad for weight in weights):
        return [model]
    return [module for child in model.children() for module in find_frozen_modules(child)]
