"""Small texts, vocabularies and language models for the tests of what writes."""

from __future__ import annotations

from typing import Any

import torch
from encoders import documents

from regard.models.blocks import initialise_weights
from regard.models.config import TransformerLMConfig
from regard.models.language_model import TransformerLM
from regard.tasks.lm import LanguageModelTask, LmConfig
from regard.text.tokenizer import LM_SPECIAL_TOKENS, Tokenizer
from regard.text.tokenizer_training import TokenizerConfig, train_tokenizer

DOCUMENTS = documents(30)
"""Documents of several lines each."""


def vocabulary(kind: Any = "bpe", size: int = 300) -> Tokenizer:
    return train_tokenizer(
        DOCUMENTS, TokenizerConfig(kind=kind, vocabulary=size), LM_SPECIAL_TOKENS, add_prefix_space=False
    )


BYTES, LETTERS = vocabulary(), vocabulary("characters")


def task(tokenizer: Tokenizer = BYTES, **settings: Any) -> LanguageModelTask:
    return LanguageModelTask(LmConfig(**{"length": 16, **settings}), tokenizer)


def small(of: LanguageModelTask, *, seed: int = 0, spread: float = 0.4, **shape: Any) -> TransformerLM:
    """The model of a task, tiny, in float64, with weights drawn so wide that it is sure of something."""
    table = {"preset": "tiny", "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
    model = of.build_model(TransformerLMConfig(**{**table, "n_positions": 16, **shape}))
    assert isinstance(model, TransformerLM)
    initialise_weights(model, torch.Generator().manual_seed(seed), spread)
    return model.double().eval()
