"""What a model hands on to the one that starts from it."""

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


@pytest.mark.parametrize(("trained_with", "tuned_with"), [(0.0, 0.1), (0.1, 0.1), (0.3, 0.3)])
def test_a_model_trained_without_dropout_is_tuned_with_it(trained_with: float, tuned_with: float) -> None:
    assert start(trained_with).complete_recipe(GIVEN, "test")["model"]["dropout"] == tuned_with


def test_dropout_is_free() -> None:
    given = {**GIVEN, "model": {"start": "bert", "dropout": 0.0}}
    assert start(0.3).complete_recipe(given, "test")["model"]["dropout"] == 0.0


@pytest.mark.parametrize(("asked", "positions"), [(100, 128), (128, 128), (300, 300)])
def test_texts_may_be_longer_where_no_positions_are_learned(asked: int, positions: int) -> None:
    given = {**GIVEN, "task": {"name": "classify", "length": asked}}
    free, bound = start(positions="rotary", n_positions=128), start(n_positions=128)
    assert free.complete_recipe(given, "test")["model"]["n_positions"] == positions
    if asked <= 128:
        assert bound.complete_recipe(given, "test")["model"]["n_positions"] == 128
        return
    with pytest.raises(ConfigError, match=r"task.length = 300, but bert has learned 128 positions"):
        bound.complete_recipe(given, "test")
