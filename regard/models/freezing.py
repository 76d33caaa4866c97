"""Freezing: weights that training leaves as they are (``train.freeze``).

    "embeddings"    the input embeddings
    n               these and the first n layers
    "encoder"       the whole encoder with its embeddings; heads, or the decoder, are trained

A frozen module is in evaluation mode also while the rest is trained, so that its dropout is off: what it computes for
a text is always the same, and can be computed once (training/feature_cache.py).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import nn

from regard.errors import ConfigError

Freeze = Literal["none", "embeddings", "encoder"] | int

INPUT_EMBEDDINGS = ("embedding", "source_embedding")
ALL_EMBEDDINGS = (*INPUT_EMBEDDINGS, "target_embedding")
ENCODER_MODULES = (*INPUT_EMBEDDINGS, "encoder", "encoder_norm")


class ParameterCounts(NamedTuple):
    """The number of parameters that are trained, and of those that are frozen."""

    trained: int
    frozen: int


def check_freeze(freeze: Freeze, n_layers: int) -> None:
    """Refuse to freeze more layers than a model has."""
    if isinstance(freeze, int) and freeze > n_layers:
        raise ConfigError(f"train.freeze = {freeze}: this model has {n_layers} layers; freeze at most so many")


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
    if freeze == "encoder" and "encoder" not in modules:
        raise ConfigError(
            'train.freeze = "encoder": this model has no encoder; accepted: embeddings, or a number of layers'
        )
    prefixes: tuple[str, ...] = ALL_EMBEDDINGS if freeze == "embeddings" else ENCODER_MODULES
    if isinstance(freeze, int):
        stack = "encoder" if "encoder" in modules else "decoder"
        check_freeze(freeze, len(list(modules[stack].children())))
        prefixes = (*INPUT_EMBEDDINGS, *(f"{stack}.{layer}" for layer in range(freeze)))
    return {name for name, _ in model.named_parameters() if any(name.startswith(f"{prefix}.") for prefix in prefixes)}


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
