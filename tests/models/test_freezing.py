"""Which weights are frozen, by name, and what cannot be."""

from __future__ import annotations

import pytest
from torch import nn

from regard.errors import ConfigError
from regard.models.config import TransformerEncoderConfig, TransformerLMConfig, TransformerSeq2SeqConfig
from regard.models.encoder import TransformerEncoder
from regard.models.freezing import Freeze, count_parameters, find_frozen_modules, find_frozen_names, freeze_weights
from regard.models.language_model import TransformerLM
from regard.models.seq2seq import TransformerSeq2Seq
from regard.nn import Linear

SHAPE = {"preset": "", "d_model": 4, "n_layers": 2, "n_heads": 2, "d_ff": 8, "dropout": 0.1}


def encoder(**changes: object) -> TransformerEncoder:
    return TransformerEncoder(TransformerEncoderConfig(**{**SHAPE, **changes}), 9, {"label": Linear(4, 3)})  # type: ignore[arg-type]


def seq2seq() -> TransformerSeq2Seq:
    config = TransformerSeq2SeqConfig(**SHAPE, n_decoder_layers=1, norm="pre")  # type: ignore[arg-type]
    return TransformerSeq2Seq(config, 9, 9, joint=True)


def lm() -> TransformerLM:
    return TransformerLM(TransformerLMConfig(**SHAPE), 9)  # type: ignore[arg-type]


def top_modules(model: nn.Module, freeze: Freeze) -> set[str]:
    """Return the frozen modules, layers by their number, none of which has a trained weight."""
    frozen, names = find_frozen_names(model, freeze), {name for name, _ in model.named_parameters()}

    def module(name: str) -> str:
        parts = name.split(".")
        return ".".join(parts[:2] if parts[0] in ("encoder", "decoder") else parts[:1])

    assert {module(name) for name in frozen}.isdisjoint({module(name) for name in names - frozen})
    return {module(name) for name in frozen}


def test_parts_of_an_encoder() -> None:
    assert top_modules(encoder(), "none") == set()
    assert top_modules(encoder(), "embeddings") == {"embedding"}
    assert top_modules(encoder(), 1) == {"embedding", "encoder.0"}
    assert top_modules(encoder(), 2) == top_modules(encoder(), "encoder") == {"embedding", "encoder.0", "encoder.1"}
    assert "encoder_norm" in top_modules(encoder(norm="pre"), "encoder")


def test_parts_of_other_models() -> None:
    assert top_modules(seq2seq(), "encoder") == {"source_embedding", "encoder.0", "encoder.1", "encoder_norm"}
    assert top_modules(lm(), "embeddings") == {"embedding"}
    assert top_modules(lm(), 1) == {"embedding", "decoder.0"}
    with pytest.raises(ConfigError, match=r'^train.freeze = "encoder": this model has no encoder; accepted: embed'):
        freeze_weights(lm(), "encoder")


def test_counts_and_modules() -> None:
    model = encoder()
    total = sum(weight.numel() for weight in model.parameters())
    freeze_weights(model, "encoder")
    counts = count_parameters(model, "encoder")
    assert counts == (4 * 3 + 3, total - 15)
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == [
        "heads.label.weight",
        "heads.label.bias",
    ]
    assert find_frozen_modules(model) == [model.embedding, model.encoder]
    partly = encoder()
    freeze_weights(partly, 1)
    assert find_frozen_modules(partly) == [partly.embedding, partly.encoder[0]]
    assert find_frozen_modules(encoder()) == []


def test_more_layers_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"^train.freeze = 3: this model has 2 layers; freeze at most that many$"):
        freeze_weights(encoder(), 3)


def test_nothing_left_to_train() -> None:
    bare = TransformerEncoder(TransformerEncoderConfig(**SHAPE), 9, {})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^train.freeze = 'encoder' leaves nothing to train; freeze less$"):
        freeze_weights(bare, "encoder")
