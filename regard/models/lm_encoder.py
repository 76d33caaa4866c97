"""A language model as an encoder for classification and tagging: embeddings and layers, no output projection.

    TransformerLM   decoder.0.attention ...   ->   TransformerEncoder   encoder.0.attention ...        (GPT)
    RecurrentLM     decoder.0.rnn ...         ->   RecurrentEncoder     encoder.0.forward_rnn ...      (ULMFiT)

                      two RecurrentLMs         ->   BiLMEncoder          encoder.0.forward_rnn, .backward_rnn   (ELMo)

The encoder reads in the direction of the language model, so its hidden states are those of the language model
(Radford et al. 2018, Howard and Ruder 2018, Peters et al. 2018). Called by training/pretrained.py, where fine-tuning
starts from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

from torch import Tensor

from regard.models.config import (
    DirectedEncoderConfig,
    Directions,
    ModelConfig,
    TransformerEncoderConfig,
    TransformerLMConfig,
)
from regard.models.recurrent.config import BiLMConfig, RecurrentEncoderConfig, RecurrentLMConfig

ConfigT = TypeVar("ConfigT", bound=DirectedEncoderConfig)


def is_language_model(config: object) -> bool:
    """Return True for the config of a causal language model."""
    return isinstance(config, TransformerLMConfig | RecurrentLMConfig)


def make_encoder_config(config: ModelConfig, direction: Directions) -> DirectedEncoderConfig:
    """Return the config of the encoder that has the layers of a language model; it knows no token types."""
    if isinstance(config, TransformerLMConfig):
        return _convert_config(config, TransformerEncoderConfig, direction)
    assert isinstance(config, RecurrentLMConfig), config
    return _convert_config(config, RecurrentEncoderConfig, direction)


def _convert_config(config: ModelConfig, config_class: type[ConfigT], direction: Directions) -> ConfigT:
    known = {field.name for field in fields(config_class)}
    values = {key: value for key, value in vars(config).items() if key in known}
    return config_class(**{**values, "preset": "", "n_parts": 0, "directions": direction})


def describe_difference(forward: ModelConfig, backward: ModelConfig) -> str:
    """Return why two language models cannot be read side by side; nothing if they can."""
    if not (isinstance(forward, RecurrentLMConfig) and isinstance(backward, RecurrentLMConfig)):
        return "both must be recurrent language models (--architecture rnn)"
    for name in ("d_model", "n_layers", "cell"):
        first, second = getattr(forward, name), getattr(backward, name)
        if first != second:
            return f"model.{name} is {first!r} in the forward one and {second!r} in the backward one"
    return ""


def make_bilm_config(forward: RecurrentLMConfig, start_backward: str) -> BiLMConfig:
    """Return the config of two language models of one shape side by side."""
    shape = {name: getattr(forward, name) for name in ("n_layers", "cell", "dropout", "n_positions", "spread")}
    return BiLMConfig(preset="", d_model=2 * forward.d_model, start_backward=start_backward, **shape)


def merge_weights(forward: Mapping[str, Tensor], backward: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of two language models by their names in a `BiLMEncoder`."""
    return {
        name.replace("embedding.", f"embedding.{direction}_lm.", 1) if name.startswith("embedding.") else name: weight
        for direction, weights in (("forward", forward), ("backward", backward))
        for name, weight in rename_weights(weights, "forward" if direction == "forward" else "backward").items()
    }


def rename_weights(weights: Mapping[str, Tensor], direction: Directions) -> dict[str, Tensor]:
    """Return the weights of a language model by their names in the encoder; the output projection keeps its own."""
    renamed = {}
    for name, weight in weights.items():
        module, _, rest = name.partition(".")
        name = f"{module.replace('decoder', 'encoder')}.{rest}"
        renamed[name.replace(".rnn.", f".{direction}_rnn.")] = weight
    return renamed
