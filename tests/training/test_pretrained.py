"""Settings that fine-tuning inherits from the pretrained model."""

from __future__ import annotations

import pytest
from encoders import vocabulary

from regard.errors import ConfigError
from regard.models.config import TransformerEncoderConfig, apply_preset
from regard.text.tokenizer_training import TokenizerConfig
from regard.training.pretrained import PretrainedModel

GIVEN = {"model": {"start": "bert"}, "tokenizer": {}, "task": {"name": "classify"}}


def start(dropout: float = 0.1, **shape: object) -> PretrainedModel:
    config = TransformerEncoderConfig(
        **apply_preset({"preset": "tiny", "dropout": dropout, **shape}, TransformerEncoderConfig)
    )
    return PretrainedModel("bert", vocabulary(), TokenizerConfig(kind="wordpiece", vocabulary=300), config, {}, {})


@pytest.mark.parametrize(("pretraining_dropout", "fine_tuning_dropout"), [(0.0, 0.1), (0.1, 0.1), (0.3, 0.3)])
def test_fine_tuning_has_dropout_even_if_pretraining_had_none(
    pretraining_dropout: float, fine_tuning_dropout: float
) -> None:
    assert start(pretraining_dropout).complete_recipe(GIVEN, "test")["model"]["dropout"] == fine_tuning_dropout


def test_dropout_may_be_set() -> None:
    given = {**GIVEN, "model": {"start": "bert", "dropout": 0.0}}
    assert start(0.3).complete_recipe(given, "test")["model"]["dropout"] == 0.0


@pytest.mark.parametrize(("requested_length", "positions"), [(100, 128), (128, 128), (300, 300)])
def test_texts_may_be_longer_without_learned_positions(requested_length: int, positions: int) -> None:
    given = {**GIVEN, "task": {"name": "classify", "length": requested_length}}
    free = start(positions="rotary", n_positions=128)
    assert free.complete_recipe(given, "test")["model"]["n_positions"] == positions


def test_texts_are_no_longer_than_learned_positions() -> None:
    bound = start(n_positions=128)
    for length in (100, 128):
        given = {**GIVEN, "task": {"name": "classify", "length": length}}
        assert bound.complete_recipe(given, "test")["model"]["n_positions"] == 128
    with pytest.raises(ConfigError, match=r"task.length = 129, but bert has learned 128 positions"):
        bound.complete_recipe({**GIVEN, "task": {"name": "classify", "length": 129}}, "test")
