"""The language model: what comes later changes nothing, nor do other texts of the row; its words may be tied."""

from __future__ import annotations

import pytest
import torch
from sentences import packed
from torch.testing import assert_close

from regard.models.blocks import initialise
from regard.models.language_model import LanguageModel
from regard.models.presets import LanguageModelConfig, with_preset
from regard.nn import record

VOCABULARY = 13
TEXTS = [[3, 4, 5, 6, 2], [9, 2], [5, 5, 5, 2]]


def tiny(**shape: object) -> LanguageModel:
    small = {"preset": "tiny", "d_model": 16, "d_ff": 20, "n_heads": 2, "n_positions": 9, "dropout": 0.0}
    model = LanguageModel(LanguageModelConfig(**with_preset({**small, **shape}, LanguageModelConfig)), VOCABULARY)
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@torch.no_grad()
def test_packed_is_one_by_one() -> None:
    model = tiny()
    together = model(packed(TEXTS))[0].split([len(text) for text in TEXTS])
    for text, logits in zip(TEXTS, together, strict=True):
        assert_close(model(packed([text]))[0], logits)


@torch.no_grad()
def test_the_future_cannot_change_the_past() -> None:
    model = tiny()
    with record(model, "decoder.*.attention.weights") as heard:
        one, other = (model(packed([[3, 4, 5, last]]))[0] for last in (6, 7))
    assert_close(one[:3], other[:3], rtol=0, atol=0)
    assert not torch.equal(one[3], other[3])
    assert all(weights.triu(1).abs().max() == 0 for weights in heard.values())


@pytest.mark.parametrize("tied", [True, False])
def test_words_in_and_out(tied: bool) -> None:
    model = tiny(tied=tied)
    assert (model.softmax_embedding.weight is model.embedding.tokens.weight) == tied
    rows = packed(TEXTS)
    assert_close(model(rows), model.hidden(rows) @ model.softmax_embedding.weight.T)


@pytest.mark.parametrize("name", LanguageModelConfig.presets)
def test_presets(name: str) -> None:
    config = LanguageModelConfig(**with_preset({"preset": name}, LanguageModelConfig))
    assert (config.norm, config.positions, config.activation) == ("pre", "learned", "gelu-tanh")


def test_gpt2_small_has_its_size() -> None:
    """124 million weights, with 1,024 positions and tied words."""
    config = LanguageModelConfig(**with_preset({"preset": "gpt2-small"}, LanguageModelConfig))
    with torch.device("meta"):
        model = LanguageModel(config, 50257)
    assert sum(weight.numel() for weight in model.parameters()) == 124_439_808
