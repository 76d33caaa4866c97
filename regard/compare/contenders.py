"""The models that are compared, each a ``[model]`` table and nothing more, and models of about one size from them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import torch
from torch import nn

from regard import config
from regard.models.families import NEXT, PAIRS, Families
from regard.models.presets import with_preset

Shape = dict[str, Any]

FIXED, ADDITIVE, DOT = "RNN, one fixed vector", "RNN, additive attention", "RNN, dot attention"

RECURRENT: dict[str, Shape] = {
    FIXED: {"architecture": "rnn", "attention": "none"},
    ADDITIVE: {"architecture": "rnn", "attention": "additive"},
    DOT: {"architecture": "rnn", "attention": "dot"},
}
"""Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015."""

SCHEMES = ("sinusoidal", "learned", "relative", "rotary", "none")

TRANSFORMERS: dict[str, Shape] = {
    f"Transformer, {scheme}": {"architecture": "transformer", "positions": scheme} for scheme in SCHEMES
}
"""By how they know the order of their tokens (SPEC 2)."""

USUAL = "Transformer, sinusoidal"
"""Vaswani et al. 2017."""

TRANSFORMER_LM, RECURRENT_LM = "Transformer language model", "recurrent language model"

LANGUAGE_MODELS: dict[str, Shape] = {
    TRANSFORMER_LM: {"architecture": "transformer"},
    RECURRENT_LM: {"architecture": "rnn"},
}

WIDTHS = range(16, 1025, 4)
"""Widths to choose from where models are made to one size."""


def build(families: Families, shape: Shape, vocabulary: int) -> Any:
    """A model of a shape, which may leave out what the smallest preset has; its weights are not drawn yet."""
    family = families[shape["architecture"]]
    complete = config.build(family.Config, with_preset({"preset": "tiny", **shape}, family.Config))
    if families is PAIRS:
        return family.Model(complete, vocabulary, vocabulary, joint=True)
    return family.Model(complete, vocabulary)


def n_parameters(model: nn.Module) -> int:
    """Weights, each counted once."""
    return sum(weight.numel() for weight in model.parameters())


def sized(families: Families, shape: Shape, vocabulary: int, wanted: int) -> Shape:
    """The shape, as wide as gives about so many parameters."""

    def counted(width: int) -> int:
        with torch.device("meta"):
            return n_parameters(build(families, {**shape, "d_model": width}, vocabulary))

    above = min(bisect_left(WIDTHS, wanted, key=counted), len(WIDTHS) - 1)
    near = WIDTHS[max(0, above - 1) : above + 1]
    return {**shape, "d_model": min(near, key=lambda width: abs(counted(width) - wanted))}


FAMILIES: dict[str, Families] = {
    **dict.fromkeys([*RECURRENT, *TRANSFORMERS], PAIRS),
    **dict.fromkeys(LANGUAGE_MODELS, NEXT),
}
"""Encoder-decoders, and language models."""
