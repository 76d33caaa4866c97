"""What a model hands on to the one that starts from it."""

from __future__ import annotations

import pytest
from encoders import vocabulary

from regard.models.presets import EncoderConfig, with_preset
from regard.text.vocabulary import TokenizerConfig
from regard.train.start import Start

GIVEN = {"model": {"start": "bert"}, "tokenizer": {}, "task": {"name": "classify"}}


def start(dropout: float) -> Start:
    shape = EncoderConfig(**with_preset({"preset": "tiny", "dropout": dropout}, EncoderConfig))
    return Start("bert", vocabulary(), TokenizerConfig(kind="wordpiece", vocabulary=300), shape, {}, {})


@pytest.mark.parametrize(("trained_with", "tuned_with"), [(0.0, 0.1), (0.1, 0.1), (0.3, 0.3)])
def test_a_model_trained_without_dropout_is_tuned_with_it(trained_with: float, tuned_with: float) -> None:
    assert start(trained_with).adopted(GIVEN, "test")["model"]["dropout"] == tuned_with


def test_dropout_is_free() -> None:
    given = {**GIVEN, "model": {"start": "bert", "dropout": 0.0}}
    assert start(0.3).adopted(given, "test")["model"]["dropout"] == 0.0
