"""The compared models as ``[model]`` tables, and how to build them and match their parameter counts."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import torch
from torch import nn

from regard import config
from regard.models.architectures import CAUSAL_LMS, ENCODER_MODELS, SEQ2SEQ_MODELS, Architectures
from regard.models.config import apply_preset

RecipeTable = dict[str, Any]

RNN_WITHOUT_ATTENTION, RNN_ADDITIVE_ATTENTION, RNN_DOT_ATTENTION = (
    "RNN, one fixed vector",
    "RNN, additive attention",
    "RNN, dot attention",
)

RNN_MODELS: dict[str, RecipeTable] = {
    RNN_WITHOUT_ATTENTION: {"architecture": "rnn", "attention": "none"},
    RNN_ADDITIVE_ATTENTION: {"architecture": "rnn", "attention": "additive"},
    RNN_DOT_ATTENTION: {"architecture": "rnn", "attention": "dot"},
}
"""Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015."""

POSITION_SCHEMES = ("sinusoidal", "learned", "relative", "rotary", "none")

TRANSFORMER_MODELS: dict[str, RecipeTable] = {
    f"Transformer, {scheme}": {"architecture": "transformer", "positions": scheme} for scheme in POSITION_SCHEMES
}
"""Transformers by position scheme."""

BASELINE_TRANSFORMER = "Transformer, sinusoidal"
"""Vaswani et al. 2017."""

TRANSFORMER_LM, RNN_LM = "Transformer language model", "recurrent language model"

LANGUAGE_MODELS: dict[str, RecipeTable] = {
    TRANSFORMER_LM: {"architecture": "transformer"},
    RNN_LM: {"architecture": "rnn"},
}

LSTM_ENCODER, GRU_ENCODER, LSTM_POOLING, TRANSFORMER_ENCODER = (
    "LSTM",
    "GRU",
    "LSTM, attention pooling",
    "Transformer",
)

FINAL_VECTOR_MODELS: dict[str, tuple[RecipeTable, str]] = {
    LSTM_ENCODER: ({"architecture": "rnn", "cell": "lstm", "directions": "forward"}, "last"),
    GRU_ENCODER: ({"architecture": "rnn", "cell": "gru", "directions": "forward"}, "last"),
    LSTM_POOLING: ({"architecture": "rnn", "cell": "lstm", "directions": "forward"}, "attention"),
    TRANSFORMER_ENCODER: ({"architecture": "transformer"}, "last"),
}
"""Encoders, each with the pooling that makes one vector of its hidden states."""

CANDIDATE_WIDTHS = range(16, 1025, 4)
"""Widths tried when a model is matched to a number of parameters."""


def build_model(architectures: Architectures, model_table: RecipeTable, vocabulary_size: int) -> Any:
    """Build a model; keys that the table leaves out are those of the preset tiny. Weights are not initialised yet."""
    family = architectures[model_table["architecture"]]
    complete = config.build(family.Config, apply_preset({"preset": "tiny", **model_table}, family.Config))
    if architectures is SEQ2SEQ_MODELS:
        return family.Model(complete, vocabulary_size, vocabulary_size, joint=True)
    if architectures is ENCODER_MODELS:
        return family.Model(complete, vocabulary_size, heads={})
    return family.Model(complete, vocabulary_size)


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(weight.numel() for weight in model.parameters())


def match_parameter_count(
    architectures: Architectures, model_table: RecipeTable, vocabulary_size: int, target_count: int
) -> RecipeTable:
    """Return the table with the width whose number of parameters is closest to `target_count`."""

    def count_at(width: int) -> int:
        with torch.device("meta"):
            return count_parameters(build_model(architectures, {**model_table, "d_model": width}, vocabulary_size))

    above = min(bisect_left(CANDIDATE_WIDTHS, target_count, key=count_at), len(CANDIDATE_WIDTHS) - 1)
    near = CANDIDATE_WIDTHS[max(0, above - 1) : above + 1]
    return {**model_table, "d_model": min(near, key=lambda width: abs(count_at(width) - target_count))}


MODEL_ARCHITECTURES: dict[str, Architectures] = {
    **dict.fromkeys([*RNN_MODELS, *TRANSFORMER_MODELS], SEQ2SEQ_MODELS),
    **dict.fromkeys(LANGUAGE_MODELS, CAUSAL_LMS),
}
"""Architectures of each model: encoder-decoders or language models."""
