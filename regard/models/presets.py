"""The shape of a model: the recipe's ``[model]`` table and the named shapes it may start from.

A preset fills the keys a recipe leaves out; each key can still be set by itself. Names that stand for modules
(``positions = "rotary"``) become those modules in models/blocks.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from regard.errors import ConfigError, did_you_mean

Architecture = Literal["transformer"]
PositionScheme = Literal["sinusoidal", "learned", "relative", "relative-values", "rotary", "none"]
NormPlacement = Literal["post", "pre"]
ActivationName = Literal["relu", "gelu", "gelu-tanh", "gated-gelu", "gated-silu"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The recipe's ``[model]`` table."""

    preset: str
    architecture: Architecture = "transformer"
    d_model: int
    n_layers: int
    n_decoder_layers: int
    n_heads: int
    d_ff: int
    dropout: float
    positions: PositionScheme = "sinusoidal"
    n_positions: int = 1024
    norm: NormPlacement
    activation: ActivationName = "relu"
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("d_model", "n_layers", "n_decoder_layers", "n_heads", "d_ff", "n_positions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} = {getattr(self, name)}; expected at least 1")
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"model.n_heads = {self.n_heads} does not divide model.d_model = {self.d_model}; "
                "choose a number of heads that does"
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout = {self.dropout}; expected 0 or more and less than 1")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ConfigError(f"model.d_model = {self.d_model} is odd; sinusoidal positions need an even width")
        if self.positions == "rotary" and self.d_model // self.n_heads % 2:
            raise ConfigError("model.positions = 'rotary' needs an even width per head; change d_model or n_heads")


def _shape(d_model: int, layers: tuple[int, int], n_heads: int, d_ff: int, dropout: float, norm: str) -> dict[str, Any]:
    return {
        "d_model": d_model,
        "n_layers": layers[0],
        "n_decoder_layers": layers[1],
        "n_heads": n_heads,
        "d_ff": d_ff,
        "dropout": dropout,
        "norm": norm,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": _shape(128, (2, 2), 4, 512, 0.1, "pre"),
    "mini": _shape(192, (4, 4), 4, 512, 0.3, "pre"),
    "small": _shape(256, (3, 3), 4, 1024, 0.1, "pre"),
    "medium": _shape(384, (6, 6), 6, 1536, 0.1, "pre"),
    "base": _shape(512, (6, 6), 8, 2048, 0.1, "post"),
    "big": _shape(1024, (6, 6), 16, 4096, 0.3, "post"),
    "deep-small": _shape(256, (8, 2), 4, 1024, 0.1, "pre"),
    "deep-base": _shape(512, (12, 2), 8, 2048, 0.1, "pre"),
}
"""Encoder-decoder shapes; ``base`` and ``big`` are Vaswani et al. 2017, ``deep-*`` Kasai et al. 2021's idea."""


def with_preset(table: dict[str, Any]) -> dict[str, Any]:
    """A ``[model]`` table with the keys its preset gives to those left out."""
    name = table["preset"]
    if name not in PRESETS:
        raise ConfigError(f"model.preset = '{name}' is unknown; {did_you_mean(name, PRESETS)}")
    return {**PRESETS[name], **table}
