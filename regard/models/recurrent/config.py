"""Configs of recurrent models; a preset has about as many parameters as the Transformer's of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from regard.errors import ConfigError
from regard.models.config import (
    ConfigTable,
    DirectedEncoderConfig,
    Directions,
    EncoderModelConfig,
    LayerCount,
    ModelConfig,
    PositionCount,
    TokenTypeCount,
)

CellName = Literal["lstm", "gru"]
AttentionScore = Literal["none", "additive", "dot", "general", "scaled"]

TRAINING_DEFAULTS: dict[str, Any] = {"compiled": False, "precision": "float32"}
"""No compilation because batches differ in shape; float32 because a state accumulates over many steps."""


def _recurrent_preset(d_model: int, n_layers: int, dropout: float = 0.1, **more: Any) -> ConfigTable:
    return {"d_model": d_model, "n_layers": n_layers, "dropout": dropout, **more}


def _recurrent_seq2seq_preset(d_model: int, n_layers: int, dropout: float) -> ConfigTable:
    return _recurrent_preset(d_model, n_layers, dropout, n_decoder_layers=n_layers)


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """Fields of every recurrent model.

    There are no position embeddings: `n_positions` is the longest text accepted at inference.
    """

    uses_packing: ClassVar[bool] = False
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {"train": TRAINING_DEFAULTS}

    architecture: str = "rnn"
    n_layers: LayerCount
    cell: CellName = "lstm"


def _check_width(d_model: int, directions: Directions) -> None:
    if directions == "both" and d_model % 2:
        raise ConfigError(f"model.d_model = {d_model} is odd; each of two directions has half of it")


@dataclass(frozen=True, kw_only=True)
class RecurrentSeq2SeqConfig(RecurrentConfig):
    """An encoder-decoder.

    `attention` is the score function of the cross-attention: "none" (one fixed vector, Sutskever et al. 2014),
    "additive" (Bahdanau et al. 2015), "dot" or "general" (Luong et al. 2015), or "scaled" with projected queries, keys
    and values (Vaswani et al. 2017, eq. 1). With `input_feeding` the output at one token is an input at the next (Luong
    et al. 2015, section 3.3). `tied` shares input and output embeddings.
    """

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _recurrent_seq2seq_preset(144, 2, 0.1),
        "mini": _recurrent_seq2seq_preset(272, 2, 0.3),
        "small": _recurrent_seq2seq_preset(352, 2, 0.2),
        "medium": _recurrent_seq2seq_preset(768, 2, 0.2),
        "base": _recurrent_seq2seq_preset(1024, 2, 0.2),
    }

    n_decoder_layers: LayerCount
    directions: Directions = "both"
    attention: AttentionScore = "additive"
    input_feeding: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_width(self.d_model, self.directions)


@dataclass(frozen=True, kw_only=True)
class RecurrentEncoderConfig(RecurrentConfig, DirectedEncoderConfig):
    """A bidirectional encoder for classification and tagging."""

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _recurrent_preset(144, 2),
        "mini": _recurrent_preset(416, 2),
        "small": _recurrent_preset(896, 2),
        "medium": _recurrent_preset(1280, 2),
        "base": _recurrent_preset(2048, 3),
    }
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {
        "train": {**TRAINING_DEFAULTS, "learning_rate": 2e-3},
        "task": {"pooling": "attention"},
    }

    n_positions: PositionCount = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_width(self.d_model, self.directions)


@dataclass(frozen=True, kw_only=True)
class BiLMConfig(RecurrentConfig, EncoderModelConfig):
    """The layers of a forward and of a backward language model side by side (ELMo), each of half the width.

    `start_backward` is the run directory of the backward language model, as `start` is that of the forward one.
    """

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _recurrent_preset(288, 2),
        "mini": _recurrent_preset(768, 2),
        "small": _recurrent_preset(1408, 2),
        "medium": _recurrent_preset(2304, 2),
        "base": _recurrent_preset(3584, 3),
    }
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {
        "train": {**TRAINING_DEFAULTS, "learning_rate": 2e-3},
        "task": {"pooling": "attention", "layers": "mix"},
    }

    architecture: str = "bilm"
    n_positions: PositionCount = 512
    n_parts: TokenTypeCount = 0
    start_backward: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_width(self.d_model, "both")


@dataclass(frozen=True, kw_only=True)
class StaticEncoderConfig(EncoderModelConfig):
    """Token embeddings alone, without context."""

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        name: {"d_model": width, "dropout": 0.1}
        for name, width in (("tiny", 64), ("mini", 128), ("small", 256), ("medium", 300), ("base", 512))
    }
    recipe_defaults: ClassVar[Mapping[str, ConfigTable]] = {
        "train": {"learning_rate": 5e-3},
        "task": {"pooling": "attention"},
    }

    architecture: str = "static"
    n_positions: PositionCount = 512


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig(RecurrentConfig):
    """A causal language model; `tied` shares input and output embeddings."""

    presets: ClassVar[Mapping[str, ConfigTable]] = {
        "tiny": _recurrent_preset(144, 2),
        "mini": _recurrent_preset(384, 2),
        "small": _recurrent_preset(704, 2),
        "medium": _recurrent_preset(1152, 2),
        "base": _recurrent_preset(1792, 3),
    }
    largest_cpu_preset: ClassVar[str] = "tiny"
    transfer_defaults: ClassVar[Mapping[str, ConfigTable]] = {
        "task": {"pooling": "concat"},
        "train": {"learning_rate": 2e-3},
    }

    tied: bool = True
